#!/bin/sh
# setup_macos.sh - what a build for macOS needs. On a Mac, Homebrew's packages: it installs them, or prints the command if there is no brew.
# On x86-64 Debian, for a build across and for check/macos: zig, a C compiler with macOS's headers, from PyPI, and Debian's sources of the
# libraries, compiled with it. All of that lies in build/macos/zig and needs no root; 116 MB are loaded, 450 MB stay. The lists of source
# packages are private, as in setup_aarch64.sh.
set -eu
cd "$(dirname "$0")/.."
top=$PWD

if [ "$(uname -s)" = Darwin ]; then
  packages="ninja python jansson libfyaml pcre2 xxhash zstd libevent"
  if ! command -v brew >/dev/null; then
    echo "setup_macos.sh: expected Homebrew (https://brew.sh), found none; with it, please run"
    echo "  brew install $packages"
    exit 1
  fi
  # shellcheck disable=SC2086
  brew list --formula $packages >/dev/null 2>&1 || brew install $packages
  exit 0
fi

sources="jansson libfyaml pcre2 xxhash libzstd libevent"
zig=ziglang==0.17.1
zig_sha256=ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
root=$top/build/macos/zig
cmp -s "$top/tools/setup_macos.sh" "$root/made-from.txt" && exit 0
rm -rf "$root"
mkdir -p "$root/bin" "$root/include" "$root/lib" "$root/apt/lists/partial" "$root/apt/cache/archives/partial" "$root/sources" "$root/obj"

# === The compiler =============================================================================================================

python3 -m venv "$root/python"
echo "$zig --hash=sha256:$zig_sha256" | "$root/python/bin/python" -m pip install --quiet --disable-pip-version-check --retries 2 --no-deps \
  --no-compile --require-hashes --only-binary=:all: --requirement /dev/stdin
found=$(echo "$root"/python/lib/python3*/site-packages/ziglang/zig)
for tool in cc ar; do
  target=""
  [ $tool = ar ] || target="-target aarch64-macos.13.0 -fno-sanitize=undefined"
  {
    echo '#!/bin/sh'
    echo "export ZIG_GLOBAL_CACHE_DIR='$root/cache' ZIG_LOCAL_CACHE_DIR='$root/cache'"
    echo "exec '$found' $tool $target \"\$@\""
  } > "$root/bin/$tool"
  chmod +x "$root/bin/$tool"
done

# === The libraries ============================================================================================================

touch "$root/apt/status"
echo "deb-src http://deb.debian.org/debian bookworm main" > "$root/apt/sources.list"
private="-o Dir::State=$root/apt -o Dir::State::status=$root/apt/status -o Dir::Cache=$root/apt/cache -o APT::Sandbox::User=root"
private="$private -o Dir::Etc::SourceList=$root/apt/sources.list -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none"
# shellcheck disable=SC2086
apt-get -q $private update
# shellcheck disable=SC2086
(cd "$root/sources" && apt-get -qq $private source --download-only $sources)
cd "$root/sources"
for archive in *.orig.tar.*z; do python3 -m tarfile -e "$archive"; done # tar would need xz, which is not on every machine

# make_library NAME FLAGS FILE...: the archive from the files, each compiled with the flags.
make_library() {
  name=$1 flags=$2
  shift 2
  mkdir -p "$root/obj/$name"
  for file in "$@"; do
    printf '%s\n' "$file"
  done | xargs -P 4 -I FILE sh -c 'exec "$0" -O2 -g0 -w '"$flags"' -c FILE -o "$1/$(basename FILE .c).o"' \
    "$root/bin/cc" "$root/obj/$name"
  "$root/bin/ar" qcs "$root/lib/lib$name.a" "$root/obj/$name"/*.o
}

cd "$root"/sources/xxHash-*
cp xxhash.h xxh3.h "$root/include"
make_library xxhash "" xxhash.c

# As its android/ does for those who cannot run its configure script.
cd "$root"/sources/jansson-*/src
cp ../android/jansson_config.h .
echo > jansson_private_config.h
cp jansson.h jansson_config.h "$root/include"
system="-DHAVE_STDINT_H -DHAVE_UNISTD_H -DHAVE_FCNTL_H -DHAVE_SYS_STAT_H -DHAVE_SYS_TIME_H -DHAVE_SYS_TYPES_H -DHAVE_SCHED_H"
system="$system -DHAVE_OPEN -DHAVE_CLOSE -DHAVE_READ -DHAVE_GETTIMEOFDAY -DHAVE_GETPID -DHAVE_SCHED_YIELD -DHAVE_ATOMIC_BUILTINS"
make_library jansson "$system -DUSE_URANDOM -I." ./*.c

# Without its old copy of xxHash, whose functions libxxhash has, and its open_memstream for macOS before 10.13.
cd "$root"/sources/libfyaml-*
echo "#define VERSION \"${PWD##*-}\"" > config.h
cp include/libfyaml.h "$root/include"
make_library fyaml "-D_POSIX_C_SOURCE=200809L -D_DARWIN_C_SOURCE -DHAVE_CONFIG_H -I. -Iinclude -Isrc/xxhash" src/lib/*.c

# As its NON-AUTOTOOLS-BUILD says. Without the compiler of patterns: its interpreter gives the same results.
cd "$root"/sources/pcre2-*/src
cp config.h.generic config.h
cp pcre2.h.generic pcre2.h
cp pcre2_chartables.c.dist pcre2_chartables.c
cp pcre2.h "$root/include"
parts="auto_possess chartables compile config context convert dfa_match error extuni find_bracket jit_compile maketables match match_data"
parts="$parts newline ord2utf pattern_info script_run serialize string_utils study substitute substring tables ucd valid_utf xclass"
# shellcheck disable=SC2046
make_library pcre2-8 "-DHAVE_CONFIG_H -DPCRE2_CODE_UNIT_WIDTH=8 -DPCRE2_STATIC -DSUPPORT_UNICODE" \
  $(for part in $parts; do echo "pcre2_$part.c"; done)

cd "$root"/sources/zstd-*/lib
cp zstd.h zstd_errors.h "$root/include"
make_library zstd "-DZSTD_DISABLE_ASM -I. -Icommon" common/*.c compress/*.c decompress/*.c

# What its configure script would find. Of kqueue, poll and select the library takes the first.
cd "$root"/sources/libevent-*
config=include/event2/event-config.h version=${PWD##*libevent-}
has="ARC4RANDOM ARC4RANDOM_BUF ARPA_INET_H CLOCK_GETTIME ERRNO_H FCNTL FCNTL_H FD_MASK GETADDRINFO GETEGID GETEUID GETIFADDRS GETNAMEINFO"
has="$has GETPROTOBYNUMBER GETSERVBYNAME GETTIMEOFDAY IFADDRS_H INET_NTOP INET_PTON INTTYPES_H ISSETUGID KQUEUE MMAP NANOSLEEP NETDB_H"
has="$has NETINET_IN_H NETINET_TCP_H PIPE POLL POLL_H PTHREADS PUTENV SA_FAMILY_T SELECT SETENV SETFD SETRLIMIT SIGACTION SIGNAL STDARG_H"
has="$has STDDEF_H STDINT_H STDLIB_H STRINGS_H STRING_H STRLCPY STRSEP STRTOK_R STRTOLL STRUCT_ADDRINFO STRUCT_IN6_ADDR STRUCT_LINGER"
has="$has STRUCT_SOCKADDR_IN6 STRUCT_SOCKADDR_STORAGE STRUCT_SOCKADDR_STORAGE_SS_FAMILY STRUCT_SOCKADDR_UN SYSCTL SYS_EVENT_H SYS_IOCTL_H"
has="$has SYS_MMAN_H SYS_PARAM_H SYS_QUEUE_H SYS_RESOURCE_H SYS_SELECT_H SYS_SOCKET_H SYS_STAT_H SYS_SYSCTL_H SYS_TIME_H SYS_TYPES_H"
has="$has SYS_UIO_H SYS_UN_H SYS_WAIT_H TAILQFOREACH TIMERADD TIMERCLEAR TIMERCMP TIMERISSET UINT16_T UINT32_T UINT64_T UINT8_T UINTPTR_T"
has="$has UMASK UNISTD_H UNSETENV USLEEP VASPRINTF WORKING_KQUEUE"
{
  for name in $has; do echo "#define EVENT__HAVE_$name 1"; done
  for size in INT:4 LONG:8 LONG_LONG:8 OFF_T:8 PTHREAD_T:8 SHORT:2 SIZE_T:8 TIME_T:8 VOID_P:8; do
    echo "#define EVENT__SIZEOF_${size%:*} ${size#*:}"
  done
  echo "#define EVENT__VERSION \"$version\""
  grep '^#define EVENT__NUMERIC_VERSION' WIN32-Code/nmake/event2/event-config.h
} > $config
echo > evconfig-private.h
mkdir -p "$root/include/event2"
cp include/event2/*.h "$root/include/event2"
make_library event_core "-I. -Iinclude" event.c evthread.c buffer.c bufferevent.c bufferevent_sock.c bufferevent_filter.c \
  bufferevent_pair.c bufferevent_ratelim.c listener.c evmap.c log.c evutil.c evutil_rand.c evutil_time.c strlcpy.c select.c poll.c \
  kqueue.c signal.c

cd "$root"
rm -rf apt sources obj
cp "$top/tools/setup_macos.sh" made-from.txt
