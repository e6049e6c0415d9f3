# On a fresh clone, with python3.11 (or newer) and g++: `make demo`, `make test`. Everything else follows from `make setup`.

PYTHON ?= python3.11
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
NATIVE := CMakeLists.txt $(wildcard src/native/*)
CPP := $(wildcard src/native/*.cpp src/native/*.h fuzz/*.cpp tests/*/*.cpp tests/*/*/*.cpp)
# make test ARGS='-k shuffle -x'
ARGS ?=
# A little of everything that needs neither frameworks nor processes, in under a minute.
QUICK := native/test_gather.py core/test_order.py test_errors.py test_layers.py test_mirror.py test_chains.py \
  memory/test_budget.py memory/test_ledger.py engine/stream/test_user_code.py sources/test_generator.py \
  sources/test_raw.py stages/shuffle/test_scatter.py stages/test_window.py io/test_paths.py io/test_reader.py

.PHONY: FORCE setup browser demo test quick installed check format-check lint types doctest soak oldest portable cross \
  dist bench sanitize fuzz format docs clean

setup: .venv/build.stamp

# Torch first and on its own: resolved together with the rest, pip may exchange its CPU build for another.
.venv/frameworks.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet 'numpy>=2.0' scikit-build-core nanobind cmake ninja
	touch $@

# An editable install knows its modules by name: it is made anew when one comes, goes or moves.
.venv/modules.txt: .venv/frameworks.stamp
.venv-oldest/modules.txt: .venv-oldest/pins.txt
.venv-portable/modules.txt: .venv-portable/base.stamp
%/modules.txt: FORCE
	@find src/penstock -name '*.py' | sort > $@.new; cmp -s $@ $@.new && rm $@.new || mv $@.new $@
FORCE:

# Editable: Python sources are used where they stand; the native module is rebuilt when one of its files changes.
# tf_keras by itself: it asks for `tensorflow`, and tensorflow-cpu is there.
.venv/build.stamp: .venv/frameworks.stamp .venv/modules.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps 'tf_keras>=2.18'
	touch $@

# The browser for the tests of the live page, from Debian, if we may install it. Without one these tests are skipped.
browser:
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null && exit 0; \
	test "$$(id -u)" = 0 && command -v apt-get > /dev/null || exit 0; \
	apt-get update --quiet && DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes chromium chromium-driver \
	  || echo 'chromium could not be installed: tests of the live page in a browser are skipped'

demo: setup
	$(BIN)/penstock demo

# Two files at a time; the training runs, which are processes of their own, first (tests/conftest.py). A worker that
# crashed or hung ends the run and is named: started anew, it would be given tests that nobody waits for.
SPREAD := -n 2 --dist loadscope --no-loadscope-reorder --max-worker-restart=0
test: setup browser
	$(PYTEST) -m "not soak" $(SPREAD) tests $(ARGS)

quick: setup
	$(PYTEST) -n 2 -m "not slow and not soak" $(QUICK:%=tests/%) $(ARGS)

# The same on a penstock that PYTHON has installed, which needs only pytest and its friends besides.
installed:
	$(PYTHON) -m pytest -n 2 -m "not slow and not soak" $(QUICK:%=tests/%) $(ARGS)

check: format-check lint types test doctest

format-check: setup
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)

# Python, then the settings that only other machines use: of wheels, workflows and forms.
FORMS := $(wildcard .github/ISSUE_TEMPLATE/*.yml)
lint: setup
	$(BIN)/ruff check .
	$(BIN)/validate-pyproject pyproject.toml
	$(BIN)/cibuildwheel --print-build-identifiers --platform linux --archs x86_64,aarch64
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(FORMS))
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --offline --quiet .github

# Once more as for macOS: a use of what only Linux has, with nothing that stands in for it, is an error.
types: setup
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --no-warn-unreachable --cache-dir .mypy_cache/darwin

# The examples in docstrings and in the documentation.
doctest: setup
	$(PYTEST) --doctest-modules src/penstock
	$(PYTEST) --doctest-glob='*.md' README.md $(wildcard docs)

soak: setup
	HYPOTHESIS_PROFILE=soak $(PYTEST) -m soak --timeout=7200 $(ARGS)

# Formats and Keras on the oldest versions that pyproject.toml claims, in a venv of their own: minutes to install, and
# half an hour and more to run. Libraries that old warn of much, so that their warnings are no errors here.
OLDEST := .venv-oldest/bin/python
.venv-oldest/pins.txt: pyproject.toml tests/oldest_versions.py
	test -x $(OLDEST) || $(PYTHON) -m venv .venv-oldest
	$(OLDEST) -m pip install --quiet --upgrade pip
	$(OLDEST) -m pip install --quiet torch==2.13.0
	$(OLDEST) tests/oldest_versions.py > $@.new
	$(OLDEST) -m pip install --quiet --requirement $@.new google-crc32c hypothesis 'moto[server]' pytest \
	  pytest-timeout pytest-xdist scipy scikit-build-core nanobind cmake ninja
	$(OLDEST) -m pip install --quiet --no-deps 'tf_keras==2.18.*'
	mv $@.new $@

.venv-oldest/build.stamp: .venv-oldest/pins.txt .venv-oldest/modules.txt $(NATIVE)
	$(OLDEST) -m pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

oldest: .venv-oldest/build.stamp
	$(OLDEST) -m pytest -m "not soak" $(SPREAD) --timeout=3600 -W default tests/feeds/keras tests/core/test_optional.py \
	  tests/sources tests/io $(ARGS)

# What touches the system, on a build without what only Linux has, in an interpreter from which that was taken away: as
# macOS gets it, as far as it can be tested here. Its venv has the packages of .venv, and a penstock of its own.
PORTABLE := .venv-portable/bin/python
.venv-portable/base.stamp: .venv/build.stamp Makefile
	test -x $(PORTABLE) || $(BIN)/python -m venv .venv-portable
	$(BIN)/python -c 'import sys; print(*(one for one in sys.path if one.endswith("site-packages")), sep="\n")' \
	  > "$$($(PORTABLE) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	touch $@

.venv-portable/build.stamp: .venv-portable/base.stamp .venv-portable/modules.txt $(NATIVE)
	$(PORTABLE) -m pip install --quiet --no-build-isolation --no-deps --config-settings build-dir=build/portable \
	  --config-settings cmake.define.PENSTOCK_PORTABLE=ON --editable .
	printf '%s\n' '$(CURDIR)/tests/portable' 'import without_linux' \
	  > "$$($(PORTABLE) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/without_linux.pth"
	touch $@

portable: .venv-portable/build.stamp
	$(PORTABLE) -m pytest -m "not soak" $(SPREAD) tests/native tests/core tests/memory tests/io tests/workers \
	  tests/shards tests/stages/shuffle tests/engine $(ARGS)

# What is published: an sdist, and from it a wheel for this machine (CI makes those for others). Each goes into a fresh
# venv with nothing but what the core depends on, and passes the quick tests there.
.venv-dist/tools.stamp: Makefile
	test -x .venv-dist/bin/python || $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet build auditwheel
	touch $@

dist: .venv-dist/tools.stamp
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist
	.venv-dist/bin/python tools/check_dist.py dist
	.venv-dist/bin/auditwheel show dist/*.whl
	.venv-dist/bin/python tools/install_dist.py dist

# The kernels compiled for other systems, by a compiler that comes as a package. It is large, so `make setup` leaves it out.
cross: setup
	$(BIN)/python -m pip install --quiet 'ziglang>=0.13'
	$(BIN)/python tests/portable/other_systems.py

bench: setup
	$(BIN)/python benchmarks/run.py $(ARGS)

# The native tests under the address and undefined-behaviour sanitizers.
# - libstdc++ is preloaded with libasan, which must find __cxa_throw before the module brings it along.
# - PYTHONMALLOC=malloc: Python's own allocator would hide small overruns.
# - pytest -s: a report is written as the process dies, when captured output is lost.
# - detect_leaks=0: CPython and NumPy keep memory until the process ends, and it would all be reported as leaked.
sanitize: setup
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DCMAKE_BUILD_TYPE=Debug -DPENSTOCK_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python)
	$(BIN)/cmake --build build/sanitize
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  PENSTOCK_SANITIZED="$$(ls build/sanitize/_native*.so)" PYTHONPATH=tests \
	  $(PYTEST) -s -p native.sanitized tests/native $(ARGS)

# The TFRecord decoder under a coverage-guided fuzzer (needs a clang++ with libFuzzer): make fuzz SECONDS=1800
SECONDS ?= 60
fuzz: setup
	sh fuzz/run.sh $(SECONDS)

format: setup
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)
	$(BIN)/ruff check --fix .

# The documentation as a site, in site/. It is made from the checkout alone, and its pages load nothing from elsewhere:
# open site/index.html, or, to search in it, `python -m http.server -d site`. (The variable: Material for MkDocs
# advertises its successor on each run.)
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf build dist site .venv-dist .venv-portable .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f .venv/build.stamp
