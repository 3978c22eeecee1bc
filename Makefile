# The short names. What they do is in ./setup, ./check and `wirerate --help`.

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
WIRERATE := $(or $(CARGO_TARGET_DIR),target)/release/wirerate
OUT := out

.DEFAULT_GOAL := help
.PHONY: help run replay build package site test reproduce bench fuzz clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: build ## the gateway live, between hosts in network namespaces, with policies/home-office.toml
	demo/live

replay: build ## a minute of office traffic through policies/home-office.toml, and what became of it
	mkdir -p $(OUT)
	$(WIRERATE) generate traffic --like office --seconds 60 --seed 1 --policy policies/home-office.toml --out $(OUT)/
	$(WIRERATE) replay policies/home-office.toml lan=$(OUT)/lan.pcapng wan=$(OUT)/wan.pcapng --out $(OUT)/replay

build: ## the wirerate command, optimised
	./setup run
	cargo build --release --locked --package wirerate --bin wirerate

package: ## a Debian package of the command, with manual, unit and completions: docs/install.md
	./setup package
	packaging/package

site: ## the documentation as a site, with search, in target/site
	./setup test
	./check site

test: ## all the checks and tests
	./setup test
	./check

reproduce: build ## five papers' numbers beside the model's, with ranges and figures, as a page
	mkdir -p $(OUT)
	$(WIRERATE) reproduce --markdown --html $(OUT)/reproduce.html > $(OUT)/reproduce.md
	@echo "Written to $(OUT)/reproduce.html and $(OUT)/reproduce.md."

bench: build ## packets a second on one core
	$(WIRERATE) bench forward

fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	./setup long
	./check fuzz

clean: ## remove what was built and generated
	cargo clean
	rm -rf $(OUT) fuzz/target bench/rv32/target packaging/strongswan/build
