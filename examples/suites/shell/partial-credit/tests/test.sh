#!/bin/sh
# Harbor reads reward.json before reward.txt: a flat object of numbers, `reward` being the one that counts.
cd /app || exit 1
right=0
[ "$(cat one.txt)" = 1 ] && right=$((right + 1))
[ "$(cat two.txt)" = 2 ] && right=$((right + 1))
[ "$(cat three.txt)" = 3 ] && right=$((right + 1))
awk -v right=$right 'BEGIN { printf "{\"reward\": %.4f, \"files\": %d}\n", right / 3, right }' > /logs/verifier/reward.json
