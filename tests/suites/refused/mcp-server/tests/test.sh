#!/bin/sh
if (
cd /app || exit 1
[ -e done.txt ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
