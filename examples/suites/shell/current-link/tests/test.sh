#!/bin/sh
if (
cd /app || exit 1
[ -L current ] && [ "$(cat current/version)" = 2 ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
