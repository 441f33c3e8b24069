# The tasks of development. `make help` lists them.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS   += --no-builtin-rules
.DEFAULT_GOAL := help

BINARY   ?= bin/tidemark
VERSION  ?= $(shell git describe --tags --dirty 2>/dev/null || echo dev)
LISTEN   ?= 127.0.0.1:8080
STORE    ?= sqlite:
LINT     := go tool -modfile=tools/go.mod golangci-lint
# The program, its tests and the linter share one set of flags. So the standard library and the
# drivers are compiled once, and once more for the race detector. The SDK of AWS is compiled without
# inlining, which makes the program small. Nothing has the tables of debuggers, which cost half the
# time of linking a test. The linter vets the code, so `go test` does not (VET).
COMPILE := -trimpath -gcflags=github.com/aws/...=-l -ldflags=-w
export GOFLAGS := $(strip $(filter-out $(COMPILE),$(shell go env GOFLAGS)) $(COMPILE))
export CGO_ENABLED = 0
VET := -vet=off
# The tests of the tree's shape, which make static runs and make suites leaves out.
SHAPE := ^Test(Shape|Arrows|Generate|Invariants|Style|Size|Frozen|Promised)_
# What runs tests and prints a summary at the end: `$(TEST) STAGE ARGUMENTS-OF-GO-TEST`.
TEST := .build/stages/stages test

# The suites in test/ run the real binary and a browser. All others are a package's own tests.
PACKAGES  = $(shell go list ./... | grep -v -e '/test$$' -e '/test/')
# The slowest packages begin first, so that no core is idle at the end.
SLOWEST   = $(addprefix github.com/tidemark-im/tidemark/,storage/postgres cmd/tidemark)
# Those whose tests wait the longest without the race detector, the longest first.
WAITING   = $(addprefix github.com/tidemark-im/tidemark/,cmd/tidemark reach/kafka storage/sqlite \
	transports client server/bus/redis reach/webhook server/registry/redis transports/redis reach)
# Their tests run against a database under load, for minutes. `make test` runs them once, with the
# race detector.
DATABASES = $(addprefix github.com/tidemark-im/tidemark/storage/,postgres dynamodb)

# SQLite is C that was translated to Go, and not this project's code. Under the race detector it
# takes four times as long, so it is compiled without. Its locks are those of the standard library,
# which the detector knows. So the detector still finds a race around it.
RACE := -race -gcflags=modernc.org/...=-race=false

# These tests of the stores call them one by one, or look at plans. The detector would find nothing
# there, and take three times as long. `make stores` runs them without it. The schedules and
# histories, in which calls meet, run under the detector.
WRAPPERS := Count_changes_nothing|Fault_without_hooks_changes_nothing|Shared_of_one_store
ONE_BY_ONE := ^Test(Store(_shared)?|$(WRAPPERS))$$/^(rules|model)$$|^TestPlans_

# Its calls go through the SDK of AWS, which is slow under the race detector. These tests make so
# many of them that they run without it (make store-dynamodb). The others run with it (make
# race-dynamodb).
DYNAMODB  = github.com/tidemark-im/tidemark/storage/dynamodb
NOT_SHARED := ^TestStore_shared$$/^(rules|model|schedules)$$
SLOW_UNDER_RACE := ^Test(Limits|Cost|Chain|Frozen|Store$$|Store_durable)|$(NOT_SHARED)
# On DynamoDB's emulator these take as long as all other rules. TestLimits_ has the limits that
# DynamoDB adds, and make soak runs both.
LARGE_ON_DYNAMODB := ^TestStore$$/^rules$$/^Limits$$

# These tests wait for many seconds, or start clusters of Redis or several nodes. `make check`
# leaves them out. `make race`, a stage of `make test`, runs them.
SLOW_TO_WAIT_FOR := \
	TestServe_a_user_has_one_rate_on_all_nodes \
	TestServe_nodes_share_messages_tickets_and_idempotency \
	TestServe_without_Redis_serves_what_it_can \
	TestMetrics_of_several_nodes_are_what_is_documented TestRegistry_on_a_cluster \
	TestRegistry_behind_sentinels TestLookup_on_a_cluster_without_a_shard \
	TestRefresh_on_a_cluster_with_a_shard_that_hangs \
	TestProof_that_was_consumed_does_not_come_back_with_a_stale_shard \
	TestProof_that_was_consumed_does_not_come_back_with_a_stale_replica TestBus_on_a_cluster \
	TestBus_behind_sentinels TestRun_on_a_cluster_finds_the_servers \
	TestSubscription_follows_a_failover TestSubscription_follows_a_slot_that_moves \
	TestTickets_end_in_time_on_all_nodes TestTickets_of_a_session_that_was_replaced_elsewhere \
	TestRates_fill_and_are_forgotten_when_full TestRates_bound_a_user_on_all_nodes \
	TestMatrix_credentials TestMatrix_tickets TestDrain_clients_go_on_elsewhere
# Most tests that are left wait, so packages and parallel tests beyond the cores run at a time.
WAITS := -p $(shell expr $$(nproc) + 4) -parallel $(shell expr $$(nproc) + 4)
# `make check` makes fewer random runs than `go test`, unless a variable says how many.
FEWER = TIDEMARK_REACH_RUNS=$(or $(TIDEMARK_REACH_RUNS),25) \
	TIDEMARK_SIMULATION_RUNS=$(or $(TIDEMARK_SIMULATION_RUNS),100) \
	TIDEMARK_RANDOM_RUNS=$(or $(TIDEMARK_RANDOM_RUNS),30) \
	TIDEMARK_HISTORY_RUNS=$(or $(TIDEMARK_HISTORY_RUNS),10) \
	TIDEMARK_UNREAD_RUNS=$(or $(TIDEMARK_UNREAD_RUNS),50) \
	TIDEMARK_RESUME_RUNS=$(or $(TIDEMARK_RESUME_RUNS),50)

# How often a random client is cut and resumed. A package's own tests make fewer runs.
RESUME_RUNS := $(or $(TIDEMARK_RESUME_RUNS),1000)
KILL_RUNS   := $(or $(TIDEMARK_KILL_RUNS),10)
# Their bounds are in CPU time and in retries, so nothing runs beside them.
BOUNDED      := ^Test(Append|Advance|Contention)_
# The tests of services wait more than they work, so one more package than cores runs at a time.
SIDE_BY_SIDE := -p $(shell expr $$(nproc) + 1)
# The storages besides memory on which the tests of the core and the transports run again, and how
# often.
BACKENDS       := sqlite postgres dynamodb
BACKEND_RUNS   := $(or $(TIDEMARK_BACKEND_RUNS),1)
BACKEND_LIMIT  := 1h
STORE_PACKAGES := ./server ./transports ./transports/transporttest ./importer ./copying
# They test how events are framed and streams are kept open, which does not depend on the store.
# `make race` runs them on memory, and `make soak` on each storage.
STREAM_PACKAGES := ./transports/websocket ./transports/sse ./transports/longpoll
# How many seeds the simulation of the core runs.
SIMULATION_RUNS := $(or $(TIDEMARK_SIMULATION_RUNS),2000)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
		awk -F ':.*## ' '{printf "  %-17s %s\n", $$1, $$2}'

# Its flags make it small: no debug information, and functions aligned to 16 bytes instead of 32.
.PHONY: build
build: ## build bin/tidemark, without cgo
	go build -ldflags '-s -w -funcalign=16 -X main.version=$(VERSION)' \
		-o $(BINARY) ./cmd/tidemark

.PHONY: run
run: export TIDEMARK_STORE = $(STORE)
run: build ## serve http://127.0.0.1:8080 for development, with data in ./tidemark.db or in STORE
	exec bin/tidemark serve --dev --migrate --listen $(LISTEN)

.PHONY: fmt
fmt: ## format the Go code
	gofmt -w .

.PHONY: lint
lint: ## run the linter, pinned in tools/go.mod
	$(LINT) run

.PHONY: lint-aws
lint-aws: ## run cfn-lint over the stack of deploy/aws, which a test of make suites does, too
	@scripts/lint-aws

.PHONY: aws-deps
aws-deps: ## cfn-lint (by pip, below .build), for the test of deploy/aws
	@scripts/lint-aws --install

.PHONY: contract-deps
contract-deps: ## schemathesis (by pip, below .build), which generates requests from openapi.yaml
	@scripts/pip-deps schemathesis

.PHONY: static
static: stages ## stage: format check, lint, build, and the tests of the tree's shape
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	$(LINT) run
	$(MAKE) --no-print-directory build
	@$(TEST) static $(VET) -count=1 -timeout 30m -run '$(SHAPE)' ./test
	@go test -C tools $(VET) ./stages

.PHONY: check
check: postgres-deps dynamodb-deps redis-deps push-deps webhook-deps versitygw-deps static
check: ## static, and the tests of the packages without Postgres and DynamoDB: < 1 minute, warm
	@$(FEWER) $(TEST) check $(VET) -short $(WAITS) \
		-skip '^($(subst $() ,|,$(strip $(SLOW_TO_WAIT_FOR))))$$' $(WAITING) \
		$(filter-out $(DATABASES) $(WAITING),$(PACKAGES)) ./test/mutate/...

# The stages of `make test`, in this order. Each is a target, and can be made on its own.
# Those joined by + run side by side, a few at a time, so that one uses the cores while another
# waits. The longest come first. cost and chaos-short have bounds that need a machine of their own,
# so each runs alone.
# A red stage does not end the run. After three, no further stage begins (tools/stages).
TOGETHER := race backends-postgres verify static backends-dynamodb race-dynamodb store-dynamodb \
	stores backends-sqlite web simulation resume
STAGES := deps $(subst $() ,+,$(strip $(TOGETHER))) suites cost chaos-short

.PHONY: test
test: stages ## everything that has to pass, stage by stage, with a summary at the end
	@.build/stages/stages run $(STAGES)

.PHONY: stages
stages: # not within a run, whose stages execute it
	@[ -n "$${STAGES_RESULTS:-}" ] || { mkdir -p .build/stages && \
		go build -C tools -o ../.build/stages/stages ./stages; }

# It comes first. So a machine without network fails at once, and no test waits for a download.
.PHONY: deps
deps: postgres-deps dynamodb-deps redis-deps proxy-deps chaos-deps browser-deps aws-deps helm-deps
deps: contract-deps web-deps push-deps webhook-deps kafka-deps versitygw-deps
deps: build client # which stages that run side by side do not build at the same time
deps: ## stage: installs what the tests need: programs by apt, npm, pip and Maven
	@scripts/need gcc gcc libc6-dev
	@scripts/need spin spin
	@scripts/need curl curl ca-certificates
	@scripts/need strace strace

.PHONY: race race-dynamodb
race: stages postgres-deps dynamodb-deps redis-deps push-deps webhook-deps versitygw-deps
race: ## stage: the packages' own tests under the race detector, on memory
	@scripts/need gcc gcc libc6-dev
	@CGO_ENABLED=1 TIDEMARK_SIMULATION_RUNS=100 TIDEMARK_REACH_RUNS=20 \
		TIDEMARK_RANDOM_RUNS=$(or $(TIDEMARK_RANDOM_RUNS),50) \
		TIDEMARK_HISTORY_RUNS=$(or $(TIDEMARK_HISTORY_RUNS),10) \
		TIDEMARK_UNREAD_RUNS=$(or $(TIDEMARK_UNREAD_RUNS),30) $(TEST) race $(VET) \
		$(SIDE_BY_SIDE) -count=1 $(RACE) -timeout 40m \
		-skip '$(ONE_BY_ONE)|^TestMatrix_(membership|credentials)$$' $(SLOWEST) \
		$(filter-out $(DYNAMODB) $(SLOWEST),$(PACKAGES))

race-dynamodb: stages dynamodb-deps
race-dynamodb: ## stage: the tests that only storage/dynamodb has, under the race detector
	@scripts/need gcc gcc libc6-dev
	@CGO_ENABLED=1 $(TEST) race-dynamodb $(VET) -count=1 $(RACE) -timeout 40m \
		-skip '$(SLOW_UNDER_RACE)' ./storage/dynamodb

.PHONY: store-dynamodb
store-dynamodb: stages dynamodb-deps
store-dynamodb: ## stage: the other tests of storage/dynamodb: the contract, limits, cost
	@TIDEMARK_UNREAD_RUNS=$(or $(TIDEMARK_UNREAD_RUNS),30) $(TEST) store-dynamodb $(VET) -count=1 \
		-timeout 40m -run '$(SLOW_UNDER_RACE)' -skip '$(LARGE_ON_DYNAMODB)' ./storage/dynamodb

.PHONY: stores
stores: stages postgres-deps
stores: ## stage: the contract of the other storages, and Postgres' plans
	@$(TEST) stores $(VET) $(SIDE_BY_SIDE) -count=1 -timeout 40m -run '$(ONE_BY_ONE)' \
		$(filter-out $(DYNAMODB)%,$(shell go list ./storage/...))

.PHONY: verify
verify: ## stage: the models in Spin, with all rules and without each; kept until a model changes
	scripts/verify

.PHONY: backends $(addprefix backends-,$(BACKENDS))
backends: stages ## the three stages backends-…
	@.build/stages/stages run $(addprefix backends-,$(BACKENDS))

backends-sqlite: ## stage: the tests of the core and of the transports on SQLite
backends-postgres: ## stage: the same on Postgres
backends-dynamodb: ## stage: the same on DynamoDB's emulator
# The core decides who may do what and how many updates a group gets, and the transports who calls,
# not the store. The tests of these tables make a chat or a session for each cell, and those of
# updates large groups. On a database that takes most of the time. SQLite, memory (`make check`) and
# make soak run them. The adapters see of a store only its answers, which storagetest makes the same
# on each. So they run on one database here, and on each in make soak.
TABLES := ^Test(Matrix_(membership|credentials)|Roles_caller_does_only_what_they_may
TABLES := $(TABLES)|DeleteChat_who_may)$$
UPDATES := ^TestStatus_(.*_many_large_groups|updates_of_a_group_grow|least_is_shared)
# A chat costs milliseconds on DynamoDB's emulator. So tests that need hundreds run on the others.
MANY := ^Test(Session_overflow_of_the_ready_chats_loses_nothing|Import_import_once_of_many_members
MANY := $(MANY)|Ack_delivered_is_eventually_consistent_within_a_second
MANY := $(MANY)|R_WAKESET_close_marks_everything_however_much|Presence_linear_reconnects)$$
backends-postgres: LEFT_OUT = -skip '$(TABLES)|$(UPDATES)'
backends-dynamodb: LEFT_OUT = -skip '$(TABLES)|$(UPDATES)|$(MANY)'
backends-dynamodb: STORE_PACKAGES := $(filter-out ./transports,$(STORE_PACKAGES))
$(addprefix backends-,$(BACKENDS)): stages postgres-deps dynamodb-deps redis-deps
	@TIDEMARK_TEST_STORE=$(@:backends-%=%) TIDEMARK_RANDOM_RUNS=$(or $(TIDEMARK_RANDOM_RUNS),15) \
		TIDEMARK_MANY_CHATS=$(or $(TIDEMARK_MANY_CHATS),1000) \
		TIDEMARK_RESUME_RUNS=$(or $(TIDEMARK_RESUME_RUNS),25) \
		$(TEST) $@ $(VET) $(LEFT_OUT) -count=$(BACKEND_RUNS) $(SIDE_BY_SIDE) \
		-timeout $(BACKEND_LIMIT) $(STORE_PACKAGES)

.PHONY: resume
resume: stages ## stage: clients that are cut at random, a thousand times, and lose nothing
	@TIDEMARK_RESUME_RUNS=$(RESUME_RUNS) $(TEST) resume $(VET) -count=1 -timeout 20m \
		-run random ./transports/transporttest

.PHONY: simulation
simulation: stages ## stage: the core in a simulated world, TIDEMARK_SIMULATION_RUNS seeds
	@TIDEMARK_SIMULATION_RUNS=$(SIMULATION_RUNS) $(TEST) simulation $(VET) -count=1 -timeout 20m \
		-run invariants ./server/simulationtest

.PHONY: web
web: web-deps
web: ## stage: the browser client, its package and the page: types, linter, tests in Node, sizes
	@npm --prefix web/client run --silent check
	@scripts/kept client-package web/client docs/react.md docs/nextjs.md LICENSE -- \
		npm --prefix web/client run --silent pack-check
	@npm --prefix web/app run --silent check

.PHONY: release
release: RELEASE ?= .build/release/$(VERSION)
release: ## build all that a release publishes, below .build/release: make release VERSION=v1.2.3
	@scripts/npm-deps web/client .build/web
	@ln -sfn ../../.build/web/node_modules web/client/node_modules
	@mkdir -p .build
	@go build -C tools/release -o $(CURDIR)/.build/releaser .
	@.build/releaser -version '$(VERSION)' -out '$(RELEASE)' $(ARGS)

.PHONY: client
client: bin/tidemark-client.tgz ## pack @tidemark/client as bin/tidemark-client.tgz, for npm install

bin/tidemark-client.tgz: web/client/pack.mjs web/client/README.md $(wildcard web/client/*.json)
bin/tidemark-client.tgz: $(shell find web/client/src -type f)
	@scripts/npm-deps web/client .build/web
	@ln -sfn ../../.build/web/node_modules web/client/node_modules
	@npm --prefix web/client run --silent pack

.PHONY: page
page: web-deps
page: ## build the pages at / and /console from web/app into web/dist, committed and embedded
	@npm --prefix web/app run --silent build

.PHONY: suites
suites: stages build client browser-deps web-deps aws-deps proxy-deps contract-deps
suites: postgres-deps dynamodb-deps redis-deps helm-deps kafka-deps versitygw-deps
suites: ## stage: the real binary under curl, other clients, proxies, faults and Chromium
	@scripts/need curl curl ca-certificates
	@scripts/need strace strace
	@TIDEMARK_KILL_RUNS=$(KILL_RUNS) $(TEST) suites $(VET) $(SIDE_BY_SIDE) -count=1 -parallel 6 \
		-timeout 2h -skip '$(SHAPE)|$(BOUNDED)' ./test ./test/faults \
		$(filter-out %/test %/test/faults %/test/chaos,$(shell go list ./test/...))

.PHONY: cost
cost: stages postgres-deps dynamodb-deps
cost: ## stage: what calls cost in CPU time and retries, with bounds
	@$(TEST) cost $(VET) -p 1 -count=1 -timeout 30m -run '$(BOUNDED)' \
		./test/cost ./test/cost/contention

.PHONY: chaos-short
chaos-short: stages postgres-deps redis-deps chaos-deps
chaos-short: ## stage: the first test of `make chaos`, for half a minute
	@TIDEMARK_CHAOS_SECONDS=$(or $(TIDEMARK_CHAOS_SECONDS),30) $(TEST) chaos-short $(VET) \
		-count=1 -timeout 10m -run '^TestChaos$$' ./test/chaos

# For how long faults are injected into several nodes.
CHAOS_SECONDS := $(or $(TIDEMARK_CHAOS_SECONDS),300)

.PHONY: chaos
chaos: postgres-deps redis-deps chaos-deps
chaos: ## nodes and clients under random faults for TIDEMARK_CHAOS_SECONDS (300); best as root
	@# TIDEMARK_CHAOS_CLUSTER=postgres runs TestChaos on nodes without Redis.
	TIDEMARK_CHAOS_SECONDS=$(CHAOS_SECONDS) go test $(VET) -count=1 -v -timeout 24h ./test/chaos | \
		grep -v '^=== '

.PHONY: chaos-deps
chaos-deps: ## nft and ip (by apt), by which packets are lost
	@scripts/need nft nftables
	@scripts/need ip iproute2

.PHONY: fuzz
fuzz: ## every fuzz target for TIDEMARK_FUZZ_TIME (10s); their seeds are in every run of the tests
	scripts/fuzz

.PHONY: mutate
mutate: ## apply each recorded break, and show that its test fails (ARGS="-run Send")
	TIDEMARK_SIMULATION_RUNS=$(or $(TIDEMARK_SIMULATION_RUNS),2500) go run ./test/mutate $(ARGS)

.PHONY: frozen
frozen: ## write the data of version 1, from which later versions must upgrade
	TIDEMARK_UPDATE=frozen go test -p 1 -count=1 -run TestFrozen \
		$(addprefix ./storage/,memory sqlite postgres dynamodb)

.PHONY: invariants
invariants: ## write into docs/internals/invariants.md where each rule is kept
	go run ./test/mutate -write

.PHONY: soak
soak: stages client browser-deps web-deps aws-deps proxy-deps contract-deps
soak: postgres-deps dynamodb-deps redis-deps chaos-deps helm-deps kafka-deps
soak: ## the suites, and the random histories of every storage, with long counts: hours
	@scripts/need curl curl ca-certificates
	@scripts/need strace strace
	TIDEMARK_RESUME_RUNS=$(or $(TIDEMARK_RESUME_RUNS),20000) \
		TIDEMARK_CLIENT_RUNS=$(or $(TIDEMARK_CLIENT_RUNS),500) \
		TIDEMARK_KILL_RUNS=$(or $(TIDEMARK_KILL_RUNS),500) \
		TIDEMARK_HANG_SECONDS=$(or $(TIDEMARK_HANG_SECONDS),30) \
		TIDEMARK_FAULT_SECONDS=$(or $(TIDEMARK_FAULT_SECONDS),80) \
		TIDEMARK_STORM_CONNECTIONS=$(or $(TIDEMARK_STORM_CONNECTIONS),5000) \
		TIDEMARK_PUSH_RECIPIENTS=$(or $(TIDEMARK_PUSH_RECIPIENTS),10000) \
		TIDEMARK_BACKLOG_EVENTS=$(or $(TIDEMARK_BACKLOG_EVENTS),1000000) \
		TIDEMARK_COST_CHATS=$(or $(TIDEMARK_COST_CHATS),1000) \
		TIDEMARK_DEATH_SESSIONS=$(or $(TIDEMARK_DEATH_SESSIONS),20000) \
		TIDEMARK_OUTLET_KILLS=$(or $(TIDEMARK_OUTLET_KILLS),200) \
		TIDEMARK_CANARIES=$(or $(TIDEMARK_CANARIES),100) \
		TIDEMARK_JOB_KILLS=$(or $(TIDEMARK_JOB_KILLS),500) \
		TIDEMARK_PAGE_MESSAGES=$(or $(TIDEMARK_PAGE_MESSAGES),10000) \
		TIDEMARK_CHROMIUM=$(or $(TIDEMARK_CHROMIUM),chromium) \
		TIDEMARK_CHAOS_SECONDS=$(or $(TIDEMARK_CHAOS_SECONDS),3600) \
		TIDEMARK_SCHEMATHESIS_EXAMPLES=$(or $(TIDEMARK_SCHEMATHESIS_EXAMPLES),1000) \
		go test -count=1 -timeout 24h ./client ./transports/transporttest ./test/...
	TIDEMARK_IMPORT_MESSAGES=$(or $(TIDEMARK_IMPORT_MESSAGES),1000000) \
		TIDEMARK_IMPORT_KILLS=$(or $(TIDEMARK_IMPORT_KILLS),20) \
		go test -count=1 -v -timeout 12h -run '^TestImport_' ./test
	scripts/bench expiry --messages $(or $(TIDEMARK_EXPIRY_MESSAGES),10000000)
	TIDEMARK_SIMULATION_RUNS=$(or $(TIDEMARK_SIMULATION_RUNS),10000) \
		go test -count=1 -v -timeout 24h ./server/simulationtest
	TIDEMARK_PRESENCE_USERS=$(or $(TIDEMARK_PRESENCE_USERS),10000) \
		go test -count=1 -v -timeout 1h -run '^TestPresence_linear_' ./server
	TIDEMARK_REACH_RUNS=$(or $(TIDEMARK_REACH_RUNS),20000) \
		go test -count=1 -v -timeout 24h -run at_random ./reach
	TIDEMARK_HISTORY_RUNS=$(or $(TIDEMARK_HISTORY_RUNS),20000) \
		TIDEMARK_FAULT_RUNS=$(or $(TIDEMARK_FAULT_RUNS),1000) \
		TIDEMARK_UNREAD_RUNS=$(or $(TIDEMARK_UNREAD_RUNS),100000) \
		go test -count=1 -timeout 24h ./storage/memory ./storage/sqlite -rapid.checks=20000
	TIDEMARK_SHARED_RULES=all TIDEMARK_HISTORY_RUNS=$(or $(TIDEMARK_HISTORY_RUNS),5000) \
		TIDEMARK_UNREAD_RUNS=$(or $(TIDEMARK_UNREAD_RUNS),100000) \
		go test -count=1 -timeout 24h -run '^TestStore' ./storage/postgres -rapid.checks=2000
	TIDEMARK_SHARED_RULES=all TIDEMARK_HISTORY_RUNS=$(or $(TIDEMARK_HISTORY_RUNS),2000) \
		TIDEMARK_UNREAD_RUNS=$(or $(TIDEMARK_UNREAD_RUNS),20000) \
		TIDEMARK_LIMIT_MESSAGES=100000 go test -count=1 -timeout 24h \
		-run '^Test(Store|Limits)' ./storage/dynamodb -rapid.checks=500
	TIDEMARK_RANDOM_RUNS=$(or $(TIDEMARK_RANDOM_RUNS),1000) \
		TIDEMARK_MANY_CHATS=$(or $(TIDEMARK_MANY_CHATS),10600) \
		TIDEMARK_RESUME_RUNS=$(or $(TIDEMARK_RESUME_RUNS),1000) \
		$(MAKE) --no-print-directory backends BACKEND_RUNS=$(or $(TIDEMARK_BACKEND_RUNS),20) \
		BACKEND_LIMIT=24h LEFT_OUT= STORE_PACKAGES='$(STORE_PACKAGES) $(STREAM_PACKAGES)'
	scripts/verify large
	TIDEMARK_DRAIN_CLIENTS=$(or $(TIDEMARK_DRAIN_CLIENTS),900) go test -count=1 -v -timeout 10m \
		-run '^TestDrain_clients_go_on_elsewhere$$' ./cmd/tidemark
	$(MAKE) --no-print-directory mutate
	npm --prefix web/client run --silent build
	TIDEMARK_CLIENT_SEEDS=$(or $(TIDEMARK_CLIENT_SEEDS),100000) \
		TIDEMARK_DIFFERENTIAL_SEEDS=$(or $(TIDEMARK_DIFFERENTIAL_SEEDS),1000) \
		npm --prefix web/client run --silent simulate
	TIDEMARK_TRACE=$(CURDIR)/.build/traces.jsonl \
		TIDEMARK_TRACE_RUNS=$(or $(TIDEMARK_TRACE_RUNS),500) \
		go test -count=1 -run Traces ./server/simulationtest
	TIDEMARK_TRACE=$(CURDIR)/.build/traces.jsonl npm --prefix web/client run --silent traces
	npm --prefix web/client run --silent mutate
	TIDEMARK_FUZZ_TIME=$(or $(TIDEMARK_FUZZ_TIME),5m) scripts/fuzz

.PHONY: bench
bench: build ## measure: bin/tidemark bench against a server of its own (ARGS="p2p --duration 10s")
	scripts/bench $(ARGS)

.PHONY: cluster
cluster: build postgres-deps redis-deps
cluster: ## start three nodes, Redis, Postgres and a proxy; CLUSTER=postgres without Redis
	@scripts/need curl curl ca-certificates
	@scripts/unpack nginx nginx
	@scripts/cluster

.PHONY: helm-deps
helm-deps: ## the linter and renderer of charts (tools/helm), below .build, for deploy/helm
	@scripts/helm-deps

.PHONY: proxy-deps
proxy-deps: ## nginx, Caddy and HAProxy, below .build, and systemd-analyze (by apt), for deploy/
	@scripts/need systemd-analyze systemd
	@scripts/unpack nginx nginx
	@scripts/unpack caddy caddy
	@scripts/haproxy-deps

.PHONY: postgres-deps
postgres-deps: ## Postgres (by apt) and PgBouncer (below .build), neither as a service
	@scripts/postgres-deps

.PHONY: dynamodb-deps
dynamodb-deps: ## DynamoDB's emulator dynoxide (by npm, below .build)
	@scripts/dynamodb-deps

.PHONY: redis-deps
redis-deps: ## Redis (unpacked below .build, not as a service), for the tests of registry and bus
	@scripts/redis-deps

.PHONY: kafka-deps
kafka-deps: ## Apache Kafka (by Maven, below .build) and Java (by apt)
	@scripts/kafka-deps

.PHONY: versitygw-deps
versitygw-deps: ## an S3 server on a directory (tools/versitygw), below .build, for attachments
	@scripts/versitygw-deps

.PHONY: browser-deps
browser-deps: ## Chromium and Firefox (by apt), and what drives them (by npm, below .build)
	@scripts/need chromium chromium
# Ubuntu has none. The tests then take Chromium itself.
	@if apt-cache show chromium-headless-shell >/dev/null 2>&1; then \
		scripts/need chromium-headless-shell chromium-headless-shell; fi
	@scripts/firefox-deps
	@scripts/npm-deps test/browser .build/browser

.PHONY: web-deps
web-deps: ## what builds and tests web/client and web/app (by npm, below .build)
	@scripts/npm-deps web/client .build/web
	@scripts/npm-deps web/client/test/fixtures .build/fixtures
	@ln -sfn ../../.build/web/node_modules web/client/node_modules
	@scripts/npm-deps web/app .build/app
	@ln -sfn ../../.build/app/node_modules web/app/node_modules

.PHONY: push-deps
push-deps: ## http_ece (by npm, below .build), which decrypts Web Push in a test
	@scripts/npm-deps reach/push/webpush/testdata/http_ece .build/push

.PHONY: webhook-deps
webhook-deps: ## the libraries of Standard Webhooks (by npm and pip), which verify in a test
	@scripts/npm-deps reach/webhook/testdata/standardwebhooks .build/webhook
	@scripts/pip-deps standardwebhooks

.PHONY: clean
clean: ## remove what was built; data (tidemark.db) stays
	rm -rf bin .build
