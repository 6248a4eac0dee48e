# libblasd.3 from the public header: comments are its prose, declarations its synopsis; a heading
# that begins with three dashes is a section.
function escaped(text) {
    gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/'/, "\\(aq", text)
    return text ~ /^\./ ? "\\&" text : text
}
function example(on) { if (on != in_code) print on ? ".nf" : ".fi"; in_code = on }
BEGIN {
    printf ".TH LIBBLASD 3 \"\" \"blasd %s\" \"Library Functions\"\n.SH NAME\nlibblasd \\(em a client for blasd in C\n", version
    print ".SH SYNOPSIS\n.nf\n#include <blasd.h>\n\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs blasd)\n.fi\n.SH DESCRIPTION"
}
/^#|^extern "C"|^}$/ { next }
/^\/\*/ { comment = 1; example(0); print ".PP"; sub(/^\/\* ?/, "") }
comment {
    ended = /\*\/$/; sub(/ *\*\/$/, ""); sub(/^ \* ?/, "")
    if (/^--- /) { sub(/^--- /, ""); sub(/\.$/, ""); sub(/:.*/, ""); print ".SH \"" escaped(toupper($0)) "\"" }
    else if (/^    /) { example(1); print escaped($0) }
    else if (/^$/) { example(0); print ".PP" }
    else { example(0); print escaped($0) }
    if (ended) { comment = 0; example(0) }
    next
}
/^$/ { example(0); next }
{ if (!in_code) print ".PP"; example(1); print escaped($0) }
END { example(0); print ".SH SEE ALSO\n.BR blasd (1)" }
