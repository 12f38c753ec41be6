#!/bin/sh
if (
cd /app || exit 1
[ "$(tr -d " \n" < sum.txt)" = 66 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
