#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" " " < iso.txt)" = "2024-02-01 1999-12-31 " ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
