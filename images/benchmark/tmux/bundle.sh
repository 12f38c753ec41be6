#!/bin/sh
# Copy tmux with everything that it loads into a folder that works in any Linux image: its own loader, its libraries,
# one UTF-8 locale.
set -eu
folder=$1
binary=$(command -v tmux)
mkdir -p "$folder/bin" "$folder/lib" "$folder/locale"
cp -L "$binary" "$folder/lib/tmux"
ldd "$binary" | while read -r name arrow path _; do
    case "$name" in linux-vdso*) continue ;; esac
    [ "$arrow" = "=>" ] || path=$name
    cp -L "$path" "$folder/lib/"
    [ "$arrow" = "=>" ] || mv "$folder/lib/$(basename "$path")" "$folder/lib/loader"
done
cp -rL /usr/lib/locale/C.utf8 "$folder/locale/C.UTF-8"
cat >"$folder/bin/tmux" <<'END'
#!/bin/sh
here=${0%/*}
link=$(readlink "$0") && here=${link%/*}
here=${here%/*}
# An image without a UTF-8 locale of its own gets ours: tmux refuses to start in another.
[ -d /usr/lib/locale/C.utf8 ] || export LOCPATH="$here/locale"
exec "$here/lib/loader" --library-path "$here/lib" --argv0 tmux "$here/lib/tmux" -u "$@"
END
chmod 755 "$folder/bin/tmux"
"$folder/bin/tmux" -V
