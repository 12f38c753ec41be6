#!/bin/sh
if (
cd /app || exit 1
[ "$(cut -d" " -f1 sum.txt | tr -d "\n")" = "$(sha256sum data.txt | cut -d" " -f1)" ] && [ "$(wc -w < sum.txt)" -eq 1 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
