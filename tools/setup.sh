#!/bin/sh
# setup.sh - installs the packages that the build and the tests need, on Debian 12 or Ubuntu 24.04 and later.
# As root it installs them; otherwise it prints the command and exits with status 1. Does nothing if all are installed. On a Mac
# setup_macos.sh does the same.
set -eu
[ "$(uname -s)" != Darwin ] || exec "$(dirname "$0")/setup_macos.sh"

packages="gcc g++ ninja-build python3 binutils libc6-dev libjansson-dev libfyaml-dev libpcre2-dev libzstd-dev libxxhash-dev libcmocka-dev"
packages="$packages libevent-dev libssl-dev pkgconf python3-yaml"

missing=""
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "setup.sh: these packages are missing; please run"
  echo "  sudo apt-get install --no-install-recommends$missing"
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
# shellcheck disable=SC2086
apt-get -q install -y --no-install-recommends $missing
