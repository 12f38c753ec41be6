#!/bin/sh
if (
cd /app || exit 1
[ "$(tr -d " \n" < failed.txt)" = 3 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
