#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" ";" < joined.txt)" = "ada 36 london;bob 40 paris;" ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
