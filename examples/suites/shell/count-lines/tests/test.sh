#!/bin/sh
if (
cd /app || exit 1
[ "$(tr -d " \n" < count.txt)" = 7 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
