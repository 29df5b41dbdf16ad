#!/bin/sh
# setup_aarch64.sh - what an x86-64 Debian 12 needs to build for aarch64 and to run the result (check/aarch64): a cross compiler and an
# emulator, installed as setup.sh does, and Debian's arm64 libraries, unpacked into build/aarch64/debian without root. The lists of arm64
# packages lie there, too, so that the machine's own packages stay as they are: libevent-dev cannot be installed for two architectures.
set -eu
cd "$(dirname "$0")/.."

packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
libraries="libjansson-dev libfyaml-dev libpcre2-dev libzstd-dev libxxhash-dev libevent-dev libssl-dev libcmocka-dev"
libraries="$libraries libcmocka0 libjansson4 libpcre2-8-0 libxxhash0"
root=build/aarch64/debian

missing=""
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ] && [ "$(id -u)" -ne 0 ]; then
  echo "setup_aarch64.sh: these packages are missing; please run"
  echo "  sudo apt-get install --no-install-recommends$missing"
  exit 1
fi
if [ -n "$missing" ]; then
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  apt-get -q install -y --no-install-recommends $missing || { apt-get -q update && apt-get -q install -y --no-install-recommends $missing; }
fi

[ "$(cat $root/made-from.txt 2>/dev/null || true)" != "$libraries" ] || exit 0
rm -rf $root
mkdir -p $root/apt/lists/partial $root/apt/cache/archives/partial
touch $root/apt/status
folder=$PWD/$root/apt
private="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$folder -o Dir::State::status=$folder/status"
private="$private -o Dir::Cache=$folder/cache -o Acquire::Languages=none -o APT::Sandbox::User=root"
# shellcheck disable=SC2086
apt-get -q $private update
# shellcheck disable=SC2086
(cd $root/apt && apt-get -q $private download $libraries)
for package in $root/apt/*.deb; do dpkg-deb -x "$package" $root; done
rm -rf $root/apt
echo "$libraries" > $root/made-from.txt
