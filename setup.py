"""Packages fedsteer_tff."""

import pathlib
import runpy

import setuptools

_ROOT = pathlib.Path(__file__).resolve().parent
# The file alone: importing the package needs what is only now installed.
_VERSION = runpy.run_path(str(_ROOT / 'fedsteer_tff' / '_version.py'))[
  '__version__'
]

_PLOTS = ['markdown', 'matplotlib']
_DEV = [
  'build',
  'cryptography',
  'hypothesis',
  'ipykernel',
  'latex2mathml',
  'mkdocs-material',
  'mkdocstrings[python]',
  "mutmut ; python_version >= '3.10'",
  'mypy',
  'nbclient',
  'psutil',
  'pydoclint',
  'pytest',
  'pytest-cov',
  'pytest-xdist',
  'ruff',
  'scikit-learn',
]

setuptools.setup(
  name='fedsteer-tff',
  version=_VERSION,
  description=(
    'Federated learning under extreme staleness, for TensorFlow Federated'
  ),
  long_description=(_ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  packages=setuptools.find_packages(include=['fedsteer_tff', 'fedsteer_tff.*']),
  # Its annotations are for the type checkers of those who use it.
  package_data={'fedsteer_tff': ['py.typed']},
  python_requires='>=3.9,<3.12',
  # The exact versions that are tested are in requirements.txt.
  install_requires=[
    'absl-py',
    'dp-accounting',
    'grpcio',
    'numpy',
    'tensorflow-federated==0.87.0',
    'tensorflow~=2.14.0',
    'tensorflow-privacy',
    'tqdm',
  ],
  extras_require={'plots': _PLOTS, 'dev': _PLOTS + _DEV},
  classifiers=[
    'Development Status :: 4 - Beta',
    'Intended Audience :: Science/Research',
    'Operating System :: POSIX :: Linux',
    'Programming Language :: Python :: 3.9',
    'Programming Language :: Python :: 3.10',
    'Programming Language :: Python :: 3.11',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
  ],
)
