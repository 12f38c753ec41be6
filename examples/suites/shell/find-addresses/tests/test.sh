#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" " " < addresses.txt)" = "ann@example.org bo.li@example.com " ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
