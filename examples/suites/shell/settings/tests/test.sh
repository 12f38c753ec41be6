#!/bin/sh
if (
cd /app || exit 1
[ "$(tr "\n" " " < settings.env)" = "HOST=localhost PORT=8080 DEBUG=0 " ]
); then
    echo 1 > /logs/verifier/reward.txt
else
    echo 0 > /logs/verifier/reward.txt
fi
