#!/usr/bin/env bash
# Runs the tests of both SDKs against a binary: sdk/test.sh BINARY [FOLDER]
#
# What npm and pip fetch and the compiler makes lies in FOLDER, target/sdk unless said otherwise; nothing is written beside the
# sources. What cannot be run here is named at the end. With CI set, or where RINGFENCE_SDK_REQUIRE lists it (python, typescript,
# agent, with commas; frameworks only where it is listed), that is a failure. The network is used only to fetch what is not in FOLDER yet.
set -euo pipefail

AGENT_SDK=@anthropic-ai/claude-agent-sdk
AGENT_SDK_VERSION=0.3.325
MYPY_VERSION=2.4.1
AI_SDK_VERSION=7.0.169
FRAMEWORKS=(langchain-core==1.7.2 openai-agents==0.24.0 pydantic-ai-slim==2.66.0)

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: sdk/test.sh BINARY [FOLDER]" >&2; exit 2; }
[ -x "$1" ] && [ -f "$1" ] || { echo "error: $1 is no program; build it with: cargo build" >&2; exit 2; }
binary=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
folder=${2-$here/../target/sdk}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
require=${RINGFENCE_SDK_REQUIRE-}
[ -z "${CI-}" ] || require=python,typescript,agent

state=$(mktemp -d)
trap 'rm -rf -- "$state"' EXIT
skipped=()
failed=()

skip() { # WHAT WHY
    echo "SKIPPED LOUDLY: $1: $2" >&2
    skipped+=("$1: $2")
    case ",$require," in *",$1,"*) failed+=("$1 is required") ;; esac
}

python_tests() {
    if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        skip python "there is no python3 of version 3.9 or newer"
        return
    fi
    echo "== python: $(python3 --version)"
    local frameworks=$folder/frameworks
    if ! [ -d "$frameworks" ] &&
        ! python3 -m pip install --quiet --no-compile --only-binary=:all: --target "$frameworks" "${FRAMEWORKS[@]}" >"$state/pip" 2>&1; then
        rm -rf "$frameworks"
        skip frameworks "pip could not fetch ${FRAMEWORKS[*]}"
    fi
    (cd "$here/python" && RINGFENCE_BIN=$binary PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$frameworks python3 -m unittest) ||
        failed+=(python)
    local types=$folder/mypy
    if ! [ -d "$types" ] && ! python3 -m pip install --quiet --no-compile --target "$types" "mypy==$MYPY_VERSION" >"$state/pip" 2>&1; then
        rm -rf "$types"
    fi
    if PYTHONPATH=$types python3 -m mypy --version >/dev/null 2>&1; then
        (cd "$here/python" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$types python3 -m mypy --cache-dir "$state/mypy" src tests) ||
            failed+=("types of python")
    else
        echo "(the types were not checked: there is no mypy)"
    fi
}

typescript_tests() {
    if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2>/dev/null; then
        skip typescript "there is no node of version 20 or newer"
        return
    fi
    cd "$folder"
    if ! [ -x node_modules/.bin/tsc ]; then
        cp "$here/typescript/package.json" "$here/typescript/package-lock.json" .
        if ! npm ci --no-audit --no-fund --prefer-offline >"$state/npm" 2>&1; then
            tail -n 5 "$state/npm" >&2
            skip typescript "npm could not fetch the compiler"
            return
        fi
    fi
    # For the package it is an optional peer, which npm leaves out.
    if ! [ -e "node_modules/$AGENT_SDK" ]; then
        if ! npm install --no-save --no-package-lock --no-audit --no-fund --prefer-offline "$AGENT_SDK@$AGENT_SDK_VERSION" \
            >"$state/npm" 2>&1 || ! [ -e "node_modules/$AGENT_SDK" ]; then
            tail -n 5 "$state/npm" >&2
            skip agent "npm could not fetch $AGENT_SDK"
        fi
    fi
    # Whoever uses this one has it. In a folder of its own, so that what a lock file brought stays as it is; nothing of it is run to install it.
    if ! [ -e ai/node_modules/ai ] && ! npm install --prefix "$folder/ai" --ignore-scripts --no-save --no-package-lock --no-audit \
        --no-fund --prefer-offline "ai@$AI_SDK_VERSION" >"$state/npm" 2>&1; then
        rm -rf ai
        skip frameworks "npm could not fetch ai"
    fi
    "$binary" mcp --help >/dev/null 2>&1 || skip agent "this binary has no \`ringfence mcp\`: only what needs none of it is tried"
    echo "== typescript: node $(node --version)"
    # A copy of the sources, from where modules are looked for in this folder.
    rm -rf typescript
    mkdir typescript
    if [ -d ai ]; then ln -s ../ai/node_modules typescript/node_modules; fi
    (cd "$here/typescript" && cp -R src tests package.json tsconfig.json tsconfig.tests.json "$folder/typescript")
    cd typescript
    tsc=$folder/node_modules/.bin/tsc
    if ! { "$tsc" -p tsconfig.json --noEmit && "$tsc" -p tsconfig.tests.json; }; then
        failed+=("types of typescript")
        return
    fi
    RINGFENCE_BIN=$binary node --test --test-concurrency=2 --test-reporter=spec build/tests/*.test.js || failed+=(typescript)
}

if RINGFENCE_STATE_DIR=$state/state "$binary" run --quiet --workspace "$state" -- true; then
    python_tests
    typescript_tests
else
    skip python "no wall can be raised here; \`ringfence doctor\` says why"
    skip typescript "no wall can be raised here"
fi

echo
for one in "${skipped[@]+"${skipped[@]}"}"; do echo "skipped: $one" >&2; done
for one in "${failed[@]+"${failed[@]}"}"; do echo "failed: $one" >&2; done
[ ${#failed[@]} -eq 0 ] || exit 1
echo "sdk: passed$([ ${#skipped[@]} -eq 0 ] || echo ", ${#skipped[@]} skipped")"
