#!/bin/sh
# Before udev, so that a wake does not wait for what it needs nothing of.
/usr/bin/dormouse-wake-hook --before-udev
