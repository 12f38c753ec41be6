#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" " " < hours.txt)" = "03 11 " ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
