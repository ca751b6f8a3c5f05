#!/bin/sh
# Says how to create the virtual environment, in one line on stdout:
#   python PATH    a Python 3.9 to 3.11 that can create one is at PATH
#   uv PATH        there is none, but uv (which brings its own) is at PATH
#   error MESSAGE  there is neither; the exit status is 1
#
# PYTHON=NAME_OR_PATH in the environment restricts the search to that one. One
# that is inside VENV=FOLDER is never chosen: the environment is made anew.

# Everything that TensorFlow Federated 0.87 and venv need of an interpreter. It
# runs on any Python, however old, and prints the version if all is there.
probe='
import platform, sys
version = "%d.%d.%d" % tuple(sys.version_info[:3])
if not (3, 9) <= tuple(sys.version_info[:2]) <= (3, 11):
  sys.exit("is Python " + version)
if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
  sys.exit("is for %s %s" % (sys.platform, platform.machine()))
try:
  import ctypes, ensurepip, sqlite3, ssl, venv
except ImportError as e:
  sys.exit("is Python %s without %s" % (version, e.name))
'

# Why the first interpreter that runs at all does not fit.
reason=

# Whether it is in VENV, where an activated environment has the first python of
# the PATH.
goes_away() {
  [ -n "${VENV:-}" ] && [ -d "$VENV" ] || return 1
  folder=$(cd "${1%/*}" && pwd -P) || return 1
  case "$folder/" in
    "$(cd "$VENV" && pwd -P)"/*) return 0 ;;
  esac
  return 1
}

# Runs the interpreter rather than trusting its name: a pyenv shim, for one, is
# there for every version and fails where that version is not enabled.
fits() {
  if goes_away "$1"; then
    [ -n "$reason" ] || reason="$1 goes away with the old environment"
    return 1
  fi
  why=$("$1" -c "$probe" 2>&1) && return 0
  case "$why" in
    "is "*) [ -n "$reason" ] || reason="$1 $why" ;;
  esac
  return 1
}

# Prints every executable of that name on the PATH, not just the first: behind a
# shim that fails there may be one that works.
on_path() {
  case "$1" in
    */*) [ ! -x "$1" ] || printf '%s\n' "$1" ;;
    *)
      rest=$PATH:
      while [ -n "$rest" ]; do
        directory=${rest%%:*}
        rest=${rest#*:}
        if [ -f "$directory/$1" ] && [ -x "$directory/$1" ]; then
          printf '%s\n' "$directory/$1"
        fi
      done
      ;;
  esac
}

newline='
'
for name in ${PYTHON:-python3.11 python3.10 python3.9 python3 python}; do
  IFS=$newline
  for candidate in $(on_path "$name"); do
    if fits "$candidate"; then
      printf 'python %s\n' "$candidate"
      exit 0
    fi
  done
  unset IFS
done

needed='Python 3.9 to 3.11 for x86_64 Linux'
if [ -n "${PYTHON:-}" ]; then
  echo "error PYTHON=$PYTHON does not fit: ${reason:-it does not run};" \
    "set it to $needed, or leave it unset"
  exit 1
fi
IFS=$newline
for candidate in $(on_path uv); do
  if ! goes_away "$candidate" && "$candidate" --version >/dev/null 2>&1; then
    printf 'uv %s\n' "$candidate"
    exit 0
  fi
done
unset IFS
echo "error $needed is needed (${reason:-no python found}):" \
  'install it with its venv module (Debian: python3.11 python3.11-venv), or' \
  'install uv (pip install uv), which brings it'
exit 1
