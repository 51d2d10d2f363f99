# Two commands do everything on a fresh machine: `make demo` and `make test`.

CARGO ?= cargo

.PHONY: demo test lint bench build clean

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

clean:
	$(CARGO) clean
