# make install DESTDIR= PREFIX=: the program, the C client and what goes with them; make uninstall takes away what
# that put there. The program and its CUDA backend lie beside each other, where it looks for one.
.PHONY: install uninstall installed deb test-deb
PREFIX ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system
INSTALL ?= install
VERSION_TEXT = $(shell cat VERSION)
SONAME = libblasd.so.0
SHARED = libblasd.so.$(VERSION_TEXT)
STAGE = $(BUILD)/install
$(BUILD)/$(SHARED): $(call obj,$(wildcard clients/c/*.c)) clients/c/blasd.h deploy/install/exports.sh
	@mkdir -p $(STAGE)
	@deploy/install/exports.sh clients/c/blasd.h >$(STAGE)/blasd.map
	$(CC) $(LDFLAGS) -shared -pthread -Wl,-soname,$(SONAME) -Wl,--version-script=$(STAGE)/blasd.map -Wl,-z,defs \
	    -o $@ $(filter %.o,$^) $(shell pkg-config --libs libcurl jansson)
# what is made for the place that it goes to
installed: all $(BUILD)/$(SHARED)
	@mkdir -p $(STAGE)
	@deploy/install/man.sh $(BUILD)/blasd clients/c/blasd.h $(STAGE)/man $(PREFIX)/share/doc/blasd
	@deploy/install/completion.sh bash $(BUILD)/blasd >$(STAGE)/blasd.bash
	@deploy/install/completion.sh zsh $(BUILD)/blasd >$(STAGE)/_blasd
	@sed 's|@prefix@|$(PREFIX)|; s|@version@|$(VERSION_TEXT)|' clients/c/blasd.pc.in >$(STAGE)/blasd.pc
	@for f in blasdConfig blasdConfigVersion; do sed 's|@version@|$(VERSION_TEXT)|' clients/c/$$f.cmake.in >$(STAGE)/$$f.cmake; done
	@sed 's|@bindir@|$(PREFIX)/bin|' deploy/install/blasd.service.in >$(STAGE)/blasd.service
install: installed
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" UNITDIR="$(UNITDIR)" INSTALL="$(INSTALL)" deploy/install/files.sh install $(BUILD)
uninstall:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" UNITDIR="$(UNITDIR)" INSTALL="$(INSTALL)" deploy/install/files.sh uninstall $(BUILD)
# for the release that they are made on; test-deb makes and tries them in bare roots, and needs to be root
deb:
	@deploy/install-packages.sh build package
	@$(MAKE) --no-print-directory -s PREFIX=/usr installed backends
	@deploy/deb/build.sh $(BUILD) $(BUILD)/deb
test-deb:
	@deploy/test-deb.sh
