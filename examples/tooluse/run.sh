#!/usr/bin/env bash
# Applies this folder (or another kustomization), waits for its benchmarks, and prints how often each model succeeds.
# usage: ./run.sh [FOLDER]; NAMESPACE names another namespace than kubectl's own, KUBECTL another kubectl.
set -euo pipefail
folder=${1:-$(dirname "$0")}
kubectl=("${KUBECTL:-kubectl}" ${NAMESPACE:+-n "$NAMESPACE"})
runs=(company-base company-sft company-dpo)
ended='{range .items[*]}{.kind}/{.metadata.name} {.status.conditions[?(@.type=="Failed")].status} {.status.conditions[?(@.type=="Failed")].message}{"\n"}{end}'

"${kubectl[@]}" apply -k "$folder"
for run in "${runs[@]}"; do
  until "${kubectl[@]}" wait --for=condition=Complete "benchmarkrun/$run" --timeout=30s >/dev/null 2>&1; do
    failed=$("${kubectl[@]}" get benchmarkruns,loratrainingjobs -o jsonpath="$ended" | grep '^[^ ]*company-[a-z]* True' || true)
    if [ -n "$failed" ]; then
      echo "$failed" >&2
      exit 1
    fi
  done
done
"${kubectl[@]}" get benchmarkruns "${runs[@]}" -o custom-columns='RUN:.metadata.name,TASKS:.status.results.tasks,SUCCESS:.status.results.mean,LOW:.status.results.interval.low,HIGH:.status.results.interval.high,VOID:.status.results.void,VERDICT:.status.comparison.verdict'
