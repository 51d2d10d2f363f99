# Two commands do everything on a fresh machine: `make demo` and `make test`.

CARGO ?= cargo

.PHONY: demo test bench build envtest clean

build:
	$(CARGO) build --release -p sluice-proxy

# Real connections through the real engine, in namespaces of its own. No cluster, no root needed.
demo: build
	./target/release/kube-proxy demo

test:
	./scripts/install-test-tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --locked

# Prints a table and writes target/bench.json.
bench:
	$(CARGO) run --release -p sluice-lab --bin sluice-bench

# Builds kube-apiserver (Go, 5 minutes the first time) for trying the proxy against a real API
# server; etcd comes from Debian's etcd-server.
envtest:
	@command -v go >/dev/null || { echo "make envtest needs Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }
	mkdir -p .cache/envtest
	cd envtest && go build -trimpath -ldflags "-s -w" -o ../.cache/envtest/kube-apiserver .

clean:
	$(CARGO) clean
