#!/usr/bin/env bash
# Make .venv with all that the checks need. Run by `make venv`; safe to run again.
# Installs no system package: `python -m whetstone_dev cluster up` does that, once something needs it.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "whetstone: $*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || fail "this is $(uname -s): the local cluster needs Linux; run this in a Linux machine"
# A demo on the user's own cluster needs no root.
[ "$(id -u)" = 0 ] || [ -n "${KUBECONFIG:-}" -a -n "${REGISTRY:-}" ] || fail "not root: the local cluster makes network namespaces and mounts; run make as root (sudo -E make ...)"
command -v go >/dev/null || fail "no Go found: Kubernetes is built from its Go modules; install Go 1.25 or newer and put 'go' on the PATH"

# The newest interpreter wins, but for ones that our pinned wheels do not know yet.
find_python() {
  local candidate
  for candidate in python3.13 python3.12 "$HOME"/.pyenv/versions/3.13*/bin/python3 "$HOME"/.pyenv/versions/3.12*/bin/python3 python3; do
    if command -v "$candidate" >/dev/null 2>&1 &&
       "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"; return
    fi
  done
}
python=$(find_python)
[ -n "$python" ] || fail "no Python 3.12 or 3.13 with venv found: install python3.13 and python3.13-venv (or a pyenv version)"

export UV_SYSTEM_CERTS=1
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
  echo "[whetstone] making .venv with $python"
  rm -rf .venv
  "$python" -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement images/uv/requirements.txt
VIRTUAL_ENV="$PWD/.venv" .venv/bin/uv sync --frozen --quiet --extra operator --extra server --extra agent --inexact
