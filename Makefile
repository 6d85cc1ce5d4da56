# "make help" lists the targets. What they do is in fragments, one idea a file.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:

# Programs that are built here or that the tests need live outside the checkout,
# so that a clean clone finds them again.
CAPK3S_CACHE ?= $${XDG_CACHE_HOME:-$$HOME/.cache}/capk3s
override CAPK3S_CACHE := $(shell echo "$(CAPK3S_CACHE)")
export CAPK3S_CACHE
BIN := $(CAPK3S_CACHE)/bin

# First those that name programs: prerequisites are expanded where they are read.
include hack/make/tools.mk test/binaries/binaries.mk
include $(filter-out hack/make/tools.mk,$(sort $(wildcard hack/make/*.mk)))

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST) | sort
