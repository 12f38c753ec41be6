#!/bin/sh
if (
cd /app || exit 1
[ -z "$(find data -name "*.log")" ] && [ -f data/keep.txt ] && [ -f data/old/log.txt ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
