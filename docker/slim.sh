#!/bin/sh
# Remove what an installed environment does not need at run time: slim.sh [MODULE that the image runs]
# Given a module, also compile what it imports and remove the parts of scipy that it does not import.
set -eu
packages=$(python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
# Away from the sources, which would be imported in place of the packages.
cd /
pip uninstall --yes --quiet setuptools pip
strip --strip-unneeded "$packages"/llvmlite/binding/libllvmlite.so
# scipy's own docstrings are what the demo trains on, so its parts stay there.
find "$packages"/numba "$packages"/numpy "$packages"/scipy -depth -type d -name tests -exec rm -rf {} +
# Images keep whole seconds, and compiled kernels are used only for sources of the very same time.
find "$packages" -exec touch --no-dereference --date=2020-01-01T00:00:00Z {} +
if [ $# -gt 0 ]; then
    fullrank --help >/dev/null
    OMP_NUM_THREADS=1 python -c "
import importlib, pathlib, shutil, sys
importlib.import_module(sys.argv[1]); importlib.import_module('fullrank.retrieval')
for part in pathlib.Path(sys.modules['scipy'].__file__).parent.iterdir():
    if part.is_dir() and part.name[0] != '_' and f'scipy.{part.name}' not in sys.modules:
        shutil.rmtree(part)
" "$1"
else
    python -m compileall -q -j 0 "$packages"
fi
