# Every target here does its own set-up; `make` alone needs only a C compiler, meson and the
# libraries that `make setup` installs. The real build is meson.build.
.DEFAULT_GOAL := build
.PHONY: all build run test bench setup python fuzz soak docs clean install

PREFIX ?= /usr/local
DESTDIR ?=
BUILD := build/release
MESON_OPTIONS ?=

# The tests' programs are half of the work, and nobody who wants to run it needs them.
all build: $(BUILD)/build.ninja
	@ninja -C $(BUILD) cli/forebay libforebay.a
	@ln -sfn release/cli/forebay build/forebay

$(BUILD)/build.ninja:
	@tools/setup.sh run
	meson setup $(BUILD) $(MESON_OPTIONS)

setup:
	@tools/setup.sh all

run:
	@tools/setup.sh run
	@$(MAKE) --no-print-directory build
	@build/forebay run

test:
	@tools/setup.sh all
	@.venv/bin/python tools/test.py

soak:
	@tools/setup.sh all
	@FOREBAY_SOAK=1 .venv/bin/python tools/test.py

fuzz:
	@tools/setup.sh all
	@.venv/bin/python tools/test.py --fuzz-seconds 60 fuzz

bench:
	@tools/setup.sh all
	@$(MAKE) --no-print-directory build
	@.venv/bin/python bench/run.py
	@.venv/bin/python bench/parse.py
	@.venv/bin/python bench/cache.py
	@.venv/bin/python bench/auto.py

python:
	@tools/setup.sh all
	@tools/make_python.sh

docs: build
	@tools/make_docs.sh

install: build
	@meson configure $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD) >/dev/null
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf build
