#!/bin/sh
# Remove what an installed environment does not need at run time: slim.sh [MODULE that the image runs]
# Given a module, also compile what it imports, and remove what it does not load of scipy.
set -eu
packages=$(python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
# Away from the sources, which would be imported in place of the packages.
cd /
pip uninstall --yes --quiet setuptools pip
find "$packages" -name '*.so*' -exec strip --strip-unneeded {} +
# scipy's own docstrings are what the demo trains on, so its modules stay there.
find "$packages"/numba "$packages"/numpy "$packages"/scipy -depth -type d -name tests -exec rm -rf {} +
# Headers and stubs are for compilers and type checkers.
find "$packages" \( -name '*.[ah]' -o -name '*.pyi' -o -name '*.pxd' \) -delete
# Images keep whole seconds, and compiled kernels are used only for sources of the very same time.
find "$packages" -exec touch --no-dereference --date=2020-01-01T00:00:00Z {} +
if [ $# -gt 0 ]; then
    fullrank --help >/dev/null
    # numba takes products of matrices from scipy.linalg, and no kernel has any. Without it, no BLAS of scipy is loaded.
    OMP_NUM_THREADS=1 python -c "
import importlib, pathlib, shutil, sys
sys.modules['scipy.linalg'] = None
importlib.import_module(sys.argv[1]); importlib.import_module('fullrank.retrieval')
packages, loaded = pathlib.Path(sys.argv[2]), pathlib.Path('/proc/self/maps').read_text()
for part in packages.glob('scipy/[a-z]*/'):
    if sys.modules.get('.'.join(part.relative_to(packages).parts)) is None:
        shutil.rmtree(part)
for library in packages.glob('scipy*/**/*.so*'):
    if str(library) not in loaded:
        library.unlink()
" "$1" "$packages"
else
    python -m compileall -q -j 0 "$packages"
fi
