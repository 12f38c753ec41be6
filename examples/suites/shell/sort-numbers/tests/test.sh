#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" " " < sorted.txt)" = "-3 2 9 10 33 100 " ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
