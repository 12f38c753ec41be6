#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" ";" < CHANGES)" = "1.5.0 Sharpen the blade;1.4.9 Fix the grinder;" ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
