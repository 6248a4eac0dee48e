# The manual pages of the C client from its public header: libblasd.3, and one for each group of functions, which a
# heading of three dashes begins (/* --- NAME: what it is about */), with a link from each function's name.
#   awk -f header-man.awk -v version=0.2.0 -v out=FOLDER blasd.h
# Comments are a page's prose, declarations its synopsis.
function escaped(text) {
    gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/'/, "\\(aq", text)
    return text ~ /^\./ ? "\\&" text : text
}
function say(text) { body = body text "\n" }
function example(on) { if (on != in_code) say(on ? ".nf" : ".fi"); in_code = on }
function begin(name, about) { page = name; summary = about; body = ""; names = ""; in_code = 0 }
function finish(  file, count, list, i) {
    example(0)
    file = out "/" page ".3"
    printf ".TH %s 3 \"\" \"blasd %s\" \"Library Functions\"\n", toupper(page), version >file
    printf ".SH NAME\n%s%s \\(em %s\n", page == "libblasd" ? "libblasd" : "", \
        page == "libblasd" ? "" : escaped(substr(names, 3)), escaped(summary) >file
    print ".SH SYNOPSIS\n.nf\n#include <blasd.h>\n\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs blasd)\n.fi" >file
    printf ".SH DESCRIPTION\n%s", body >file
    print ".SH SEE ALSO\n.BR libblasd (3),\n.BR blasd_client (3),\n.BR blasd_job (3),\n.BR blasd_async (3)," >file
    print ".BR blasd_tensor (3),\n.BR blasd_shared (3),\n.BR blasd_reply (3),\n.BR blasd (1)" >file
    close(file)
    count = split(names, list, ", ")
    for (i = 1; i <= count; i++) if (list[i] != "" && list[i] != page) {
        file = out "/" list[i] ".3"
        print ".so man3/" page ".3" >file
        close(file)
    }
}
BEGIN { begin("libblasd", "a client for blasd in C") }
in_macro || /^#/ { in_macro = /\\$/; next }
/^extern "C"|^}$/ { next }
/^\/\* --- / {
    finish(); sub(/^\/\* --- /, ""); sub(/ *\*\/$/, "")
    begin(substr($0, 1, index($0, ":") - 1), substr($0, index($0, ":") + 2)); next
}
/^\/\*/ { comment = 1; example(0); say(".PP"); sub(/^\/\* ?/, "") }
comment {
    ended = /\*\/$/; sub(/ *\*\/$/, ""); sub(/^ \* ?/, "")
    if (/^    /) { example(1); say(escaped($0)) }
    else if (/^$/) { example(0); say(".PP") }
    else { example(0); say(escaped($0)) }
    if (ended) { comment = 0; example(0) }
    next
}
/^$/ { example(0); next }
{
    if (match($0, /blasd_[a-z_]+\(/) && /^[a-z]/ && !/^typedef/) names = names ", " substr($0, RSTART, RLENGTH - 1)
    if (!in_code) say(".PP")
    example(1); say(escaped($0))
}
END { finish() }
