#!/usr/bin/env bash
# Tries the project's two commands in a clean Debian: `scripts/debian-root.sh SUITE`, such as
# `bookworm` or `trixie`.
#
# What is committed is laid into a new root that holds Debian's minimum, Python with pip, and make;
# there `make run` has to answer a request, and `make test` has to pass. ARGS and JOBS go to
# `make test`, TIME_LIMIT bounds the whole, such as 80m.
#
# Needs Linux and root, or sudo. All mounts and processes are in namespaces of their own, which end
# with this script however it ends. Where packages come from is this machine's affair: the root is
# handed apt's mirror and proxy, the index of pip, the registry of npm, and the authorities that are
# trusted here. DEBIAN_MIRROR names another mirror.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=${1:?the name of a Debian release, such as trixie}
limit=${TIME_LIMIT:-80m}

say() { printf 'sluice: %s: %s\n' "$suite" "$*" >&2; }

if ((EUID != 0)); then
    exec sudo --preserve-env "$0" "$@"
fi
if [[ -z ${IN_NAMESPACES:-} ]]; then
    PATH=$PATH:/usr/sbin:/sbin
    scripts/debian-packages.sh debootstrap:debootstrap git:git unshare:util-linux
    folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-$suite.XXXXXX")
    # The mounts are gone with the last process of the namespaces. One more look, lest anything
    # that is mounted is removed with the folder.
    finish() {
        if grep -q " $folder/" /proc/self/mountinfo; then
            say "something is still mounted in $folder, which is left there"
        else
            rm -rf --one-file-system "$folder"
        fi
    }
    trap finish EXIT
    trap 'exit 130' INT TERM HUP
    # In the background, so that a signal for this script is heeded at once.
    FOLDER=$folder IN_NAMESPACES=1 timeout --kill-after=30s "$limit" \
        unshare --mount --pid --ipc --fork --kill-child --propagation private \
        "$0" "$suite" &
    inner=$!
    trap 'kill "$inner" 2>/dev/null; wait "$inner" || true; exit 130' INT TERM HUP
    status=0
    wait "$inner" || status=$?
    ((status != 124 && status != 137)) || say "was not done within $limit"
    exit "$status"
fi

root=$FOLDER/root

# What one setting of apt is, such as Acquire::http::Proxy; nothing if it is not set.
apt_setting() {
    local value=''
    eval "$(apt-config shell value "$1")"
    printf '%s' "$value"
}

# The address of Debian's archive that apt uses here, by its label; none if it uses none.
mirror() {
    { apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 'Created-By: Packages' || true; } |
        sed -n "s/^$1|//p" | sort -u | head -n 1
}

# What a command says, in one line; nothing if it fails or is not there.
ask() { "$@" 2>/dev/null | tr '\n' ' ' | sed 's/ *$//; s/^undefined$//; s/^null$//' || true; }

# Settings of this machine for clients of registries, as VARIABLE=VALUE. Files and folders of this
# machine are none for a clean one.
settings() {
    local name value
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [[ -z ${!name:-} ]] || printf '%s=%s\0' "$name" "${!name}"
    done
    for name in index-url extra-index-url trusted-host proxy timeout retries; do
        value=$(ask python3 -m pip config get ":env:.$name")
        [[ -n $value ]] || value=$(ask python3 -m pip config get "global.$name")
        value=$(tr ' ' '\n' <<<"$value" | grep -v '^file:' | tr '\n' ' ' | sed 's/ *$//' || true)
        name=PIP_${name^^}
        [[ -z $value ]] || printf '%s=%s\0' "${name//-/_}" "$value"
    done
    value=$(ask npm config get registry)
    [[ -z $value ]] || printf 'npm_config_registry=%s\0' "$value"
    # In the root, all of them find the authorities that are trusted here in Debian's place.
    for name in PIP_CERT NODE_EXTRA_CA_CERTS npm_config_cafile; do
        printf '%s=/etc/ssl/certs/ca-certificates.crt\0' "$name"
    done
}

bootstrap() {
    local try proxy address
    proxy=$(apt_setting Acquire::http::Proxy)
    address=${DEBIAN_MIRROR:-$(mirror Debian)}
    for try in 1 2 3; do
        rm -rf --one-file-system "$root"
        say "making a clean root, try $try of 3"
        if ${proxy:+env "http_proxy=$proxy"} timeout --kill-after=10s 15m \
            debootstrap --variant=minbase \
            --include=ca-certificates,make,python3,python3-pip,python3-venv \
            "$suite" "$root" ${address:+"$address"} >"$FOLDER/debootstrap.log" 2>&1; then
            return
        fi
        tail -n 5 "$FOLDER/debootstrap.log" "$root/debootstrap/debootstrap.log" >&2 || true
        sleep $((10 * try))
    done
    say 'debootstrap failed three times'
    return 1
}

# Everything in here is to be as a person's machine is, apart from where packages come from.
furnish() {
    local name value security bundle
    security=$(mirror Debian-Security)
    if [[ -n $security ]]; then
        echo "deb $security $suite-security main" >>"$root/etc/apt/sources.list"
    fi
    {
        echo 'Acquire::Retries "5";'
        for name in http https; do
            value=$(apt_setting "Acquire::$name::Proxy")
            [[ -z $value ]] || echo "Acquire::$name::Proxy \"$value\";"
        done
    } >"$root/etc/apt/apt.conf.d/90machine"
    for bundle in "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt; do
        if [[ -f $bundle ]]; then
            cp "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
            break
        fi
    done
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for name in null zero full random urandom tty; do
        : >"$root/dev/$name"
        mount --bind "/dev/$name" "$root/dev/$name"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    for name in 0:stdin 1:stdout 2:stderr; do
        ln -s "/proc/self/fd/${name%:*}" "$root/dev/${name#*:}"
    done
    # Debian's installer makes it; not every release's minimum has it.
    [[ -e $root/etc/hosts ]] || printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n' \
        >"$root/etc/hosts"
    mkdir -p "$root/root/sluice"
    git -c safe.directory="$PWD" archive HEAD | tar -x -C "$root/root/sluice"
}

# A command in the root, with an environment of its own.
inside() {
    local -a handed
    mapfile -d '' handed < <(settings)
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LANG=C.UTF-8 TERM=dumb "${handed[@]}" "$@"
}

bootstrap
furnish
say "$(inside chroot "$root" python3 --version): make run"
inside chroot "$root" sh -c 'cd /root/sluice && exec python3 scripts/try_run.py'
say 'make test'
inside ARGS="${ARGS:-}" JOBS="${JOBS:-3}" chroot "$root" \
    sh -c 'cd /root/sluice && exec make test ARGS="$ARGS" JOBS="$JOBS"'
say 'make run and make test are well'
