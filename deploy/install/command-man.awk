# The manual page of one command from what `blasd COMMAND --help` prints.
#   blasd up --help | awk -f command-man.awk -v name=blasd-up -v version=0.2.0 -v summary='…'
function escaped(text) {
    gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/'/, "\\(aq", text)
    return text ~ /^\./ ? "\\&" text : text
}
function section(name) { if (now != name) print ".SH " name; now = name }
BEGIN {
    printf ".TH %s 1 \"\" \"blasd %s\" \"User Commands\"\n", toupper(name), version
    print ".SH NAME"; print escaped(name) " \\(em " escaped(summary)
}
/^usage: / { section("SYNOPSIS"); sub(/^usage: /, ""); print escaped($0); next }
/^ +-/ {  # an option, and behind two spaces or more what it is for
    section("OPTIONS"); sub(/^ +/, "")
    # of an option that leaves no room for two spaces the words end where prose begins
    at = match($0, /  +/)
    if (!at && match($0, /^--[a-z-]+ '[^']*' /)) at = RLENGTH
    option = at ? substr($0, 1, at - 1) : $0; rest = at ? substr($0, at) : ""
    sub(/^ +/, "", rest); sub(/ +$/, "", option)
    print ".TP"; print ".B " escaped(option); if (rest != "") print escaped(rest)
    next
}
/^      +/ && now == "OPTIONS" { sub(/^ +/, ""); print escaped($0); next }
/^Exit status: / { section("EXIT STATUS"); sub(/^Exit status: /, ""); print escaped($0); next }
/^Example: / { section("EXAMPLES"); sub(/^Example: /, ""); print ".nf"; print escaped($0); print ".fi"; next }
/^$/ { if (now != "" && now != "SYNOPSIS") { print ".PP" }; next }
{
    if (now == "SYNOPSIS") section("DESCRIPTION")
    else if (now == "OPTIONS" || now == "EXAMPLES") section("NOTES")
    print escaped($0)
}
END { print ".SH SEE ALSO"; print ".BR blasd (1)" }
