#!/usr/bin/env bash
# Makes what is released for one target: an archive, a Debian package, and their checksums. Two runs on one commit
# with one toolchain make the same bytes, wherever the directory of the source lies.
#
#   packaging/release.sh [--target TRIPLE] [--binary FILE] OUT
#
# OUT is a directory. Without --target it is the target of this machine. For another one its C compiler links, as Debian
# names it: `rustup target add aarch64-unknown-linux-gnu`, `apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross`. With
# --binary that program is packed, and nothing is built. Needs: cargo, cargo-deb (cargo install cargo-deb --locked), GNU
# tar, gzip, sha256sum. CARGO_DEB_FLAGS has further flags of cargo-deb, such as --fast.
set -euo pipefail

usage() {
    echo "usage: packaging/release.sh [--target TRIPLE] [--binary FILE] OUT" >&2
    exit 2
}

host=$(rustc -vV | sed -n 's/^host: //p')
target=$host binary='' out=''
while [ $# -gt 0 ]; do
    case $1 in
        --target) target=${2:?--target needs a triple}; shift ;;
        --binary) binary=$(realpath -e -- "${2:?--binary needs a file}"); shift ;;
        -*) usage ;;
        *) [ -z "$out" ] || usage; out=$1 ;;
    esac
    shift
done
[ -n "$out" ] || usage
for tool in cargo cargo-deb tar gzip sha256sum; do
    command -v "$tool" >/dev/null || { echo "packaging/release.sh: $tool is missing" >&2; exit 1; }
done
mkdir -p -- "$out"
out=$(realpath -e -- "$out")
cd "$(dirname "$0")/.."

# Every time in what is made is that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The package is made of what lies where cargo would have built it.
built=$work/target/$target/release
if [ -n "$binary" ]; then
    install -D -m 0755 "$binary" "$built/dormouse"
else
    # The paths of this machine stand in no message and no symbol. The flags of .cargo/config.toml make the program
    # static; a variable with flags takes their place, so they are said again.
    if [ "$target" != "$host" ]; then
        linker=CARGO_TARGET_$(printf '%s' "$target" | tr 'a-z-' 'A-Z_')_LINKER
        export "$linker=${!linker:-${target/-unknown/}-gcc}"
    fi
    flags=(-C target-feature=+crt-static -C relocation-model=static
        --remap-path-prefix="$PWD=dormouse" --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=cargo")
    # One separator between two flags, and none behind the last: rustc would take nothing for a file.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf '%s' "${flags[*]}") CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$work/target \
        cargo build --release --locked --target "$target"
fi

name=dormouse-$version-$target
mkdir -p "$work/$name"
cp "$built/dormouse" README.md CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT "$work/$name/"
cp -R man completions "$work/$name/"
rm -rf "$work/$name/man/sections"
tar --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode='u+rwX,go=rX' \
    --mtime="@$SOURCE_DATE_EPOCH" --create --file - "$name" | gzip --no-name --best >"$out/$name.tar.gz"

debian=$(CARGO_TARGET_DIR=$work/target cargo deb ${CARGO_DEB_FLAGS-} --quiet --locked --no-build --no-strip --target "$target" \
    --output "$out/")

cd "$out"
sha256sum "$name.tar.gz" "$(basename "$debian")" >"$name.sha256"
cat "$name.sha256"
