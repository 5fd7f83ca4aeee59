# kata-vfio. `make help` lists what there is to make.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The one that runs where kubectl does, not in the image.
KUBECTL := kubectl-kata_vfio
COMMANDS := kata-vfio-plugin kata-vfio-controller kata-vfio-audit kata-vfio-bootstrap $(KUBECTL)
# Those that run in VMs, each from an image of its own.
GUESTS := kata-vfio-guestnet kata-vfio-sanitize
# The one that loads a library of NVIDIA's, so it is dynamic.
FABRIC := kata-vfio-fabric
# The Go command; setup finds or installs one.
GO = $(eval GO := $(or $(shell scripts/setup.sh),$(error setup failed)))$(GO)
# The lab compiles what it puts into its machines, with the same Go.
LABPATH = PATH="$(dir $(GO)):$$PATH"
LABGO = $(LABPATH) $(GO)
export CGO_ENABLED ?= 0
# Build tags of the commands. grpc's tracing links html/template, which calls methods by name: the linker then keeps
# every exported method, a third of the plugin's size.
TAGS := grpcnotrace

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the commands into bin/
	@for c in $(COMMANDS) $(GUESTS); do echo "build bin/$$c"; $(GO) build -trimpath -tags=$(TAGS) -ldflags=-s -o bin/$$c ./cmd/$$c; done

.PHONY: fabric
fabric: ## build bin/kata-vfio-fabric, which asks Fabric Manager for NVLink partitions: it needs a C compiler
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags=-s -o bin/$(FABRIC) ./cmd/$(FABRIC)

# The plugin's image with it, for nodes with NVSwitches. LIBNVFM is NVIDIA's, which nobody but NVIDIA may give away; the build host's
# dynamic linker and C library come along.
.PHONY: fabric-image
fabric-image: export CGO_ENABLED := 0
fabric-image: build fabric ## make bin/kata-vfio-fabric-image.tar, the plugin's image with kata-vfio-fabric: LIBNVFM=/usr/lib/x86_64-linux-gnu/libnvfm.so.1
	@test -n "$(LIBNVFM)" || { echo "fabric-image: say where NVIDIA's library is: make fabric-image LIBNVFM=FILE"; exit 1; }
	@$(image-tool)
	@bin/image -o bin/$(FABRIC)-image.tar -name $(IMAGE)-fabric -entrypoint /usr/bin/kata-vfio-plugin -library '$(LIBNVFM)' \
		-dynamic /usr/bin/$(FABRIC)=bin/$(FABRIC) -label $(ANNOTATION).title=kata-vfio-plugin -label $(ANNOTATION).version=$(VERSION) \
		$(foreach c,$(filter-out $(KUBECTL),$(COMMANDS)),$(call each,$(c),bin))

# What the chart takes unless told otherwise: a node that has this image needs no --set.
CHART := deploy/helm/kata-vfio
VERSION = $(shell sed -n 's/^appVersion: *//p' $(CHART)/Chart.yaml)
IMAGE ?= $(shell sed -n '/^image:/,/^[a-z]/s/^  repository: *//p' $(CHART)/values.yaml):$(VERSION)
ANNOTATION := org.opencontainers.image

.PHONY: image
image: export CGO_ENABLED := 0
image: export GOOS := linux
image: export GOARCH := amd64
image: build ## make the container images bin/kata-vfio.tar, and one for each program of guests, without a registry
	@$(image-tool)
	@$(call images,,bin/,.tar,bin)

# A tool is built for this host, whatever the programs are for.
image-tool = GOOS= GOARCH= $(GO) -C test/tools/image build -o $(CURDIR)/bin/image .

# $(call images,FLAGS,PREFIX,SUFFIX,DIRECTORIES): archives PREFIXkata-vfioSUFFIX and so on, of the programs in the directories, each for
# another processor.
comma := ,
empty :=
each = /usr/bin/$(1)=$(subst $(empty) ,$(comma),$(strip $(2:%=%/$(1))))
images = bin/image $(1) -o $(2)kata-vfio$(3) -name $(IMAGE) -entrypoint /usr/bin/kata-vfio-plugin \
		-label $(ANNOTATION).title=kata-vfio-plugin -label $(ANNOTATION).version=$(VERSION) \
		-label $(ANNOTATION).revision=$$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown) \
		-label $(ANNOTATION).source=https://github.com/kata-vfio/kata-vfio -label $(ANNOTATION).licenses=Apache-2.0 \
		$(foreach c,$(filter-out $(KUBECTL),$(COMMANDS)),$(call each,$(c),$(4))) \
	$(foreach g,$(GUESTS),&& bin/image $(1) -o $(2)$(g)$(3) -name $(dir $(IMAGE))$(g):$(VERSION) -entrypoint /usr/bin/$(g) \
		-label $(ANNOTATION).title=$(g) -label $(ANNOTATION).version=$(VERSION) \
		-label $(ANNOTATION).source=https://github.com/kata-vfio/kata-vfio -label $(ANNOTATION).licenses=Apache-2.0 \
		$(call each,$(g),$(4)))

# What is released is compiled alike wherever that is: the same Go makes the same bytes.
ARCHS := amd64 arm64
RELEASE := $(VERSION)$(if $(DEV),-dev)

.PHONY: release
release: VERSION = $(RELEASE)
release: ## make bin/release: archives, images, chart, manifest, packages, SBOM, checksums; DEV=1 of a changed tree
	@test -n "$(DEV)" || test -z "$$(git status --porcelain)" || { echo "release: there are changes that are in no commit: commit them, or make release DEV=1"; exit 1; }
	@rm -rf bin/release bin/programs && mkdir -p bin/release
	@for a in $(ARCHS); do echo "build the commands for $$a"; mkdir -p bin/programs/$$a; \
		env -u GOFLAGS -u GOEXPERIMENT CGO_ENABLED=0 GOOS=linux GOARCH=$$a GOAMD64=v1 GOARM64=v8.0 \
		$(GO) build -trimpath -buildvcs=true -tags=$(TAGS) -ldflags=-s -o bin/programs/$$a/ $(COMMANDS:%=./cmd/%) $(GUESTS:%=./cmd/%); done
	@for p in darwin-amd64 darwin-arm64 windows-amd64 windows-arm64; do echo "build $(KUBECTL) for $$p"; mkdir -p bin/programs/$$p; \
		env -u GOFLAGS -u GOEXPERIMENT CGO_ENABLED=0 GOOS=$${p%-*} GOARCH=$${p#*-} GOAMD64=v1 GOARM64=v8.0 \
		$(GO) build -trimpath -buildvcs=true -tags=$(TAGS) -ldflags=-s -o bin/programs/$$p/ ./cmd/$(KUBECTL); done
	@for s in $(wildcard scripts/bootstrap-*.sh); do cp $$s bin/release/; done # what nodes run themselves
	@$(image-tool)
	@$(call images,-oci,bin/release/,-$(RELEASE).oci.tar,$(ARCHS:%=bin/programs/%))
	@echo "build the tools that write the release"
	@$(GO) -C test/tools/release build -o $(CURDIR)/bin/make-release .
	@env -u GOFLAGS CGO_ENABLED=0 $(GO) -C test/e2e/helm build -trimpath -buildvcs=false -gcflags=all=-dwarf=false -o $(CURDIR)/bin/helm helm.sh/helm/v4/cmd/helm
	@$(LABPATH) bin/make-release $(if $(DEV),-dev) -helm $(CURDIR)/bin/helm -programs bin/programs -version $(RELEASE) $(GUESTS:%=-guest %) -bare kata-vfio-bootstrap -o bin/release

# The registry's host and path, such as ghcr.io/kata-vfio; the files are for what comes after, such as signatures.
.PHONY: release-publish
release-publish: ## push the release's images and chart: REGISTRY=HOST/PATH [REMOTE=GIT-URL, for the krew manifest] [PLAIN_HTTP=1] [DEV=1]
	@test -n "$(REGISTRY)" || { echo "release-publish: say where to: make release-publish REGISTRY=HOST/PATH"; exit 1; }
	@$(GO) -C test/tools/release build -o $(CURDIR)/bin/publish-release ./publish
	@bin/publish-release -version $(RELEASE) -registry '$(REGISTRY)' $(if $(REMOTE),-remote '$(REMOTE)') $(if $(PLAIN_HTTP),-plain-http) $(if $(DEV),-dev) \
		-o bin/published.json $(if $(NOTES),-notes '$(NOTES)')

.PHONY: release-check
release-check: ## make the release of the last commit twice, in two places, once with nothing compiled before, and compare all bytes
	@$(LABPATH) scripts/release-check.sh

# Packages that decide, and those at the edges that qemu-user can follow: it knows too little of rtnetlink and of other
# processes for guestnet, podnet and vfio. Those of bootstrap/containers look for their own source, whose place -trimpath takes out.
ARM64 := pci device api/v1alpha1 isolation nodeconfig claim publish plan sanitize audit/finding sysfs sysfs/kernelargs cdi journal network/vf/link \
	cli/output \
	$(addprefix bootstrap/,blueprint boot host state)

# With -trimpath what the release has compiled is not compiled again.
.PHONY: arm64
arm64: ## vet for arm64, and run tests of packages that decide and of some of the kernel's edges under qemu-user
	@scripts/setup.sh qemu-aarch64-static:qemu-user-static >/dev/null
	GOARCH=arm64 $(GO) vet -trimpath ./cmd/... ./pkg/...
	GOARCH=arm64 $(GO) test -trimpath -short -exec qemu-aarch64-static $(ARM64:%=./pkg/%)

.PHONY: machine
machine: ## build the lab machine's image, if it is not cached
	@$(LABGO) run ./test/lab/cmd/lab build

.PHONY: demo
demo: ## show the main job end to end in the lab, then with a cluster, its audit and a sanitizing stage (15 minutes; the first time it builds both)
	@$(MAKE) --no-print-directory -j2 build machine
	@$(GO) build -o bin/demo-machine ./test/lab/cmd/demo
	@$(LABGO) run ./test/e2e/cmd/demo

.PHONY: picture
picture: ## take the READMEs' picture of a report with Chromium
	$(GO) test -trimpath -count=1 ./pkg/audit/report -run 'TestInChromium/it_asks_for_nothing' -update

.PHONY: shots
shots: ## render reports, the fleet's page, sheets of paper and a terminal with Chromium into bin/shots
	@mkdir -p bin/shots
	$(GO) test -trimpath -count=1 ./pkg/audit/report -run TestInChromium -shots $(CURDIR)/bin/shots

# What takes seconds for each of hundreds of points is sampled (-short of go test) but for soak, and what takes long to compile is left out.
SHORT := -short

# All that tests compile without the race detector has the flags of test/e2e/binaries, so that each package is compiled once: for tests,
# for the programs that they run, and for Kubernetes. Another set of flags is another 200 s on two processors.
unit bench-once cluster node lab kai: export GOFLAGS := $(strip $(GOFLAGS) -trimpath -gcflags=all=-dwarf=false)

.PHONY: test
test: ## run all tests: the tree's own, those of the cluster, and those in the lab
	@$(call timed,unit)
	@$(call timed,cluster)
	@$(call timed,node)
	@$(call timed,lab)

# One after the other: each keeps both processors busy, and an emulated machine's daemons have time limits of their own.
timed = echo "[$$(date -u +%T)] make $(1)"; begin=$$(date +%s); $(MAKE) --no-print-directory $(1) SHORT=$(SHORT); \
	took=$$(($$(date +%s) - begin)); echo "[$$(date -u +%T)] make $(1) took $$((took / 60)) min $$((took % 60)) s"

.PHONY: soak
soak: ## run all tests with every point, variant and phase, 50,000 claims on one node, those for arm64, and make the release twice: several hours
	@$(MAKE) --no-print-directory test SHORT= KATA_VFIO_SCHEDULES=10000
	@$(MAKE) --no-print-directory long-life
	@$(MAKE) --no-print-directory arm64
	@$(MAKE) --no-print-directory release-check

# What a plugin holds after 50,000 claims and 500 restarts, as a table.
.PHONY: long-life
long-life: export TMPDIR := $(or $(TMPDIR),$(if $(NOEXEC),,$(MEMORY)),/tmp)
long-life: export SOAK_CLAIMS := 50000
long-life:
	$(GO) test -count=1 -timeout 2h -v -run '^TestSoak$$' ./pkg/prepare

# Scripted nodes are trees of thousands of files: in memory, where there is room that programs may run from.
MEMORY = $(shell df --output=avail -BG /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 + 0 >= 4 {print "/dev/shm"}')
NOEXEC = $(shell awk '$$2 == "/dev/shm" && $$4 ~ /noexec/ {print "noexec"}' /proc/mounts)

# What does one thing after the other thousands of times, and needs no race detector, which is five times slower: soak has it.
ALONE := pkg/audit pkg/audit/archive pkg/audit/check pkg/audit/report pkg/bootstrap pkg/bootstrap/containers pkg/bootstrap/host pkg/controller/twin pkg/ledger \
	cmd/kata-vfio-audit test/arch test/chart test/docs test/docs/scripted test/hosts
# What has a line of its own.
APART := 'EveryPoint|^TestSoak$$|^TestStaleWatcher$$'
space := $(empty) $(empty)

.PHONY: unit
unit: export TMPDIR := $(or $(TMPDIR),$(if $(NOEXEC),,$(MEMORY)),/tmp)
unit: ## run the tests that need no kernel of their own
	CGO_ENABLED=1 $(GO) test -race -timeout 30m -skip $(APART) $$($(GO) list ./... | grep -vE '/kata-vfio/($(subst $(space),|,$(strip $(ALONE))))$$')
	$(if $(SHORT),,CGO_ENABLED=1) $(GO) test $(or $(SHORT),-race) -timeout $(if $(SHORT),30m,3h) -skip $(APART) $(ALONE:%=./%)
	$(GO) test -v -timeout 30m -run 'EveryPoint|^TestStaleWatcher$$' ./pkg/prepare ./pkg/bootstrap | grep -E 'points|acts|FAIL|_test.go|^ok'
	$(GO) test -v -run '^TestSoak$$' ./pkg/prepare
	$(GO) -C test/tools/image test ./...
	$(LABGO) -C test/tools/release test ./...
	$(GO) -C test/monitoring test -count=1 ./...
	@$(MAKE) --no-print-directory bench-once

# Those in a lab machine or with a control plane have build tags of their own, and `make verify` only compiles them.
BENCHED = $(sort $(dir $(shell grep -rl '^func Benchmark' --include=*_test.go pkg cmd test)))

# What each prints is for those who measure: here the sizes are small, so that it says nothing.
.PHONY: bench-once
bench-once: ## run each benchmark once with small sizes, to see that it still does; unit does it, too
	@begin=$$(date +%s); said=$$($(GO) test -short -run '^$$' -bench . -benchtime 1x -timeout 10m $(BENCHED:%=./%) 2>&1) || \
		{ echo "$$said" | grep -vE '^(goos|goarch|cpu|pkg): '; exit 1; }; \
	echo "$$(grep -c '^Benchmark' <<<"$$said") benchmarks ran once, in $$(($$(date +%s) - begin)) s"

# LANE is newest or older: which versions of Kubernetes and containerd the tests with a control plane use (test/e2e/README.md).
LANE := $(or $(LANE),$(KATA_VFIO_LANE),newest)
cluster node: export KATA_VFIO_LANE := $(LANE)
PINS = $(if $(filter older,$(LANE)),-modfile=older.mod)

# The newest is what test has.
.PHONY: lanes
lanes: ## run the tests of the cluster and of the node with the older Kubernetes and containerd, too: twice make cluster and make node
	@for lane in newest older; do for target in cluster node; do \
		echo "[$$(date -u +%T)] make $$target LANE=$$lane"; $(MAKE) --no-print-directory $$target LANE=$$lane SHORT=$(SHORT) || exit 1; done; done

.PHONY: cluster
cluster: ## run the tests against a real control plane, and those with its allocators
	$(LABGO) -C test/allocator test -count=1 $(if $(PINS),,-modfile=newest.mod) ./...
	$(LABGO) -C test/e2e/containerd test -count=1 $(PINS) ./...
	$(LABGO) test -count=1 $(SHORT) -timeout 60m -tags e2e -v -skip '^(TestNode|TestKAI|TestKata$(if $(SHORT),|TestKueue))$$' ./test/e2e

.PHONY: node
node: ## run the tests on a node of a real cluster, in a lab machine
	$(LABGO) test -count=1 $(SHORT) -timeout 75m -tags e2e -v -run '^TestNode$$' ./test/e2e

# KATA is the directory of an installed Kata, KATA_AGENT a static agent of it for the lab's guest, KATA_CONFIG another configuration than the release's,
# KATA_QEMU a static QEMU of it instead of the machine's.
# A relative path is relative to where make runs; tests run elsewhere. Only override changes what the command line of make sets.
kata bench: override export KATA := $(abspath $(KATA))
kata bench: override export KATA_AGENT := $(abspath $(KATA_AGENT))
kata bench: override export KATA_CONFIG := $(abspath $(KATA_CONFIG))
kata bench: override export KATA_QEMU := $(abspath $(KATA_QEMU))

.PHONY: kata
kata: override export KATA_VFIO_LOGS := $(abspath $(or $(KATA_VFIO_LOGS),bin/kata-logs))
kata: ## run the tests on a node with real Kata: make kata KATA=/opt/kata [KATA_AGENT=FILE] [KATA_CONFIG=FILE] [KATA_QEMU=FILE]; the logs go to bin/kata-logs
	$(LABGO) test -count=1 -timeout 8h -tags e2e -v -run '^TestKata$$' ./test/e2e

# KAI is a directory with the programs of KAI, which no module proxy has, and their CustomResourceDefinitions: test/e2e/README.md.
.PHONY: kai
kai: override export KAI := $(abspath $(KAI))
kai: ## run the tests with the scheduler KAI: make kai KAI=DIR
	$(GO) test -count=1 -timeout 15m -tags e2e -v -run '^TestKAI$$' ./test/e2e

# What other suites stand on, and what changes seldom. `make soak` runs it.
RARE := ^(TestMachine|TestRoots|TestGroupsAreRenumbered|TestUnplugged)$$

.PHONY: lab
lab: ## run the tests in lab machines
	$(LABGO) test -count=1 $(SHORT) $(if $(SHORT),-skip '$(RARE)') -timeout 100m -tags labhost -v ./test/lab

.PHONY: lint
lint: ## run the linters
	cd test/tools && $(GO) build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run --build-tags lab,labhost,e2e ./...
	@$(MAKE) --no-print-directory lint-docs

# What warns is worth a look; what is an error fails. vale's parsers are in C, and warn themselves when they are compiled.
.PHONY: lint-docs
lint-docs: ## check the words of the documents
	CGO_ENABLED=1 CGO_CFLAGS=-w $(GO) -C test/tools/vale build -o $(CURDIR)/bin/vale github.com/vale-cli/vale/v3/cmd/vale
	bin/vale $$(find . -name '*.md' -not -path '*/testdata/*' -not -path './bin/*')

.PHONY: verify
verify: ## check that formatting and modules leave no difference
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l cmd pkg test); test -z "$$unformatted" || { echo "not gofmt'ed: $$unformatted"; exit 1; }
	$(GO) mod tidy -diff
	$(GO) vet -tags lab,labhost,e2e ./...

.PHONY: bench
bench: override export KATA_VFIO_PLOTS := $(abspath $(or $(KATA_VFIO_PLOTS),bin/bench))
bench: ## run the benchmarks: ratios in one run each, with the aim beside; the plots go to bin/bench
	$(LABGO) test -tags labhost,e2e -timeout 90m -run '^$$' -bench . -benchtime 3x ./test/bench/

.PHONY: bench-weekly
bench-weekly: ## run the benchmarks, and keep what they print in bin/bench/results.txt
	@mkdir -p bin/bench
	@$(MAKE) --no-print-directory bench | tee bin/bench/results.txt
