#!/bin/sh
# Fetches what package-lock.json names into a folder, once: fetch.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
# Another may be at it: whoever comes second finds it done.
exec 9>lock
flock 9
cmp -s "$here/package-lock.json" node_modules/.fetched && exit 0
cp "$here/package.json" "$here/package-lock.json" .
# No script of a package is run: what they carry is enough. Not `npm ci`: it wants packages for other systems in the list, too.
# Where there is no network, that is soon said.
npm install --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-retries=1 --fetch-retry-mintimeout=1000 \
    --fetch-retry-maxtimeout=5000 9>&-
cp "$here/package-lock.json" node_modules/.fetched
