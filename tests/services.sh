#!/bin/sh
# What the tests marked "services" need beyond Python: a browser, PostgreSQL, node with the packages of tests/node.
set -eu
cd "$(dirname "$0")"

packages=""
command -v chromium >/dev/null || packages="$packages chromium"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || packages="$packages postgresql"
command -v node >/dev/null || packages="$packages nodejs"
command -v npm >/dev/null || packages="$packages npm"
if [ -n "$packages" ]; then
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update --quiet
    # word splitting is meant: one argument a package
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install --yes --quiet --no-install-recommends $packages
fi

if [ -f node/package-lock.json ]; then
    (cd node && npm ci --no-audit --no-fund)
fi
