#!/bin/sh
if (
cd /app || exit 1
[ "$(stat -c %a key.pem)" = 600 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
