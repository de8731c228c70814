#!/usr/bin/env bash
# `make image-test`: build the image without a Docker engine, twice, and use it as a cluster would.
# Needs root, buildah, debootstrap and the package registries; says "not run" and ends well where one is missing.
# BASE_TAR may name a root file system with Python >= 3.11 to build on; else debootstrap makes one of Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."
not_run() { echo "not run: the image, because $1"; exit 0; }
for tool in buildah debootstrap curl; do
  command -v "$tool" >/dev/null || not_run "$tool is not installed"
done
[ "$(id -u)" = 0 ] || not_run "it needs root"

work=$(mktemp -d)
clean() { rm -rf "$work" 2>/dev/null || { sleep 3; rm -rf "$work"; }; }  # a process of the image may still be leaving
trap clean EXIT
b() { buildah --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }

echo "== base"
base=${BASE_TAR:-}
if [ -z "$base" ]; then
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/root" >"$work/debootstrap.log" 2>&1 ||
    not_run "debootstrap made no base: $(tail -1 "$work/debootstrap.log")"
  tar -C "$work/root" -cf "$work/base.tar" .
  rm -rf "$work/root"
  base=$work/base.tar
fi
container=$(b from scratch) || not_run "buildah makes no container here"
b add -q "$container" "$base" / >/dev/null
b run --isolation chroot "$container" -- ln -sf /usr/bin/python3 /usr/local/bin/python ||
  not_run "buildah runs nothing in a container here"
b commit -q "$container" localhost/python:base >/dev/null
b rm "$container" >/dev/null

# what pip needs to reach its registry from inside: this machine's certificates and settings
settings=(-v /etc/ssl/certs:/etc/ssl/certs:ro)
for name in PIP_CERT PIP_INDEX_URL SSL_CERT_FILE HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -n "${!name:-}" ] && settings+=(--env "$name=${!name}")
done
image() {
  b bud --isolation chroot --network host --pull-never --format docker --timestamp 1735689600 -q "${settings[@]}" \
    --build-arg PYTHON_IMAGE=localhost/python:base --build-arg REVISION="$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    -t "localhost/tonnage:$1" . >"$work/build.log" 2>&1 || { tail -40 "$work/build.log"; exit 1; }
}
shown() { b inspect --type image --format "$2" "localhost/tonnage:$1"; }

echo "== build"
image test
shown test '{{.Docker.Config.User}} {{.Docker.Config.Healthcheck.Test}} {{.Docker.Config.Entrypoint}}{{println}}'
shown test '{{range $name, $value := .Docker.Config.Labels}}{{$name}}={{$value}}{{"\n"}}{{end}}' | grep opencontainers

echo "== build again: the same layers, byte by byte"
image again
layers=$(shown test '{{.OCIv1.RootFS.DiffIDs}}')
[ "$layers" = "$(shown again '{{.OCIv1.RootFS.DiffIDs}}')" ] || { echo "two builds of the same sources differ"; exit 1; }
echo "$layers"

echo "== run"
container=$(b from localhost/tonnage:test)
inside() { b run --isolation chroot --network host --user 10001:10001 "$container" -- "$@"; }
[ "$(inside id -u)" = 10001 ] && echo "runs as 10001"
inside tonnage --version
inside tonnage estimate Qwen/Qwen3-8B engine=vllm max_model_len=8192 gpu=l40s | grep verdict
inside python -m pip --version >/dev/null 2>&1 && { echo "pip is in the image"; exit 1; }
inside sh -c 'command -v gcc cc make' 2>/dev/null && { echo "a compiler is in the image"; exit 1; }
inside sh -c 'touch /app/x' 2>/dev/null && { echo "the application can be written to"; exit 1; }
inside sh -c 'test -s /app/sbom.cdx.json' && echo "carries its bill of materials"
port=$((20000 + RANDOM % 20000))
set -m  # its own process group, so that all of it can be ended
inside env TONNAGE_PORT=$port TONNAGE_HOST=127.0.0.1 tonnage serve >"$work/serve.log" 2>&1 &
server=$!
set +m
for _ in $(seq 100); do
  curl -fs "http://127.0.0.1:$port/readyz" >/dev/null && break
  sleep 0.2
done
curl -fs "http://127.0.0.1:$port/estimate?model=Qwen/Qwen3-8B&engine=vllm&max_model_len=8192&gpu=l40s&fields=verdict"
echo
mapfile -t health < <(shown test '{{range .Docker.Config.Healthcheck.Test}}{{println .}}{{end}}' | sed '/^CMD$/d; /^$/d')
inside env TONNAGE_PORT=$port "${health[@]}" && echo "its own health check passes"
inside env TONNAGE_PORT=1 "${health[@]}" >/dev/null 2>&1 && { echo "the health check passes without a service"; exit 1; }
kill -- "-$server"
wait "$server" || true  # it was killed: its exit code says nothing
echo "== image built and run"
