#!/bin/sh
if (
cd /app || exit 1
[ "$(cat secret.txt)" = "whet the stone" ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
