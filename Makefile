# kata-vfio. `make help` lists what there is to make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

COMMANDS := kata-vfio-plugin kata-vfio-audit
# The Go command; setup finds or installs one.
GO = $(eval GO := $(or $(shell scripts/setup.sh),$(error setup failed)))$(GO)
# The lab compiles what it puts into its machines, with the same Go.
LABGO = PATH="$(dir $(GO)):$$PATH" $(GO)
export CGO_ENABLED ?= 0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the commands into bin/
	@for c in $(COMMANDS); do echo "build bin/$$c"; $(GO) build -trimpath -ldflags=-s -o bin/$$c ./cmd/$$c; done

.PHONY: image
image: ## build the lab machine's image, if it is not cached
	@$(LABGO) run ./test/lab/cmd/lab build

.PHONY: demo
demo: ## show the main job end to end in the lab (two minutes; the first time it builds the lab, too)
	@$(MAKE) --no-print-directory -j2 build image
	@$(LABGO) run ./test/lab/cmd/demo

.PHONY: test
test: unit lab ## run all tests: the tree's own, and those in the lab

.PHONY: unit
unit: ## run the tests that need no kernel of their own
	CGO_ENABLED=1 $(GO) test -race ./...
	@$(GO) test -v -run EveryPoint ./pkg/prepare | grep points

.PHONY: lab
lab: ## run the tests in the lab machine
	$(LABGO) test -count=1 -timeout 75m -tags labhost -v ./test/lab

.PHONY: lint
lint: ## run the linters
	cd test/tools && $(GO) build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run ./...

.PHONY: verify
verify: ## check that formatting and modules leave no difference
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l cmd pkg test); test -z "$$unformatted" || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet -tags lab,labhost ./...

.PHONY: bench
bench: ## run the benchmarks: ratios in one run each
	$(LABGO) test -tags labhost -run '^$$' -bench . -benchtime 3x ./test/bench/
