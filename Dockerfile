# blasd in a container.
#   docker build -t blasd .                                   CPU
#   docker build -t blasd:cuda \
#     --build-arg BUILD_IMAGE=nvidia/cuda:13.0.0-devel-ubuntu24.04 --build-arg RUN_IMAGE=ubuntu:24.04 .
#   docker run --rm -p 127.0.0.1:8080:8080 --shm-size=4g blasd    the whole service in one container
# The first start makes a key, which is printed once; docs/keys.md says how to bring a certificate.
#   docker run --rm --gpus all -p 127.0.0.1:8080:8080 --shm-size=4g blasd:cuda
# Where BUILD_IMAGE has nvcc the image gets the CUDA backend and, of the toolkit, the libraries that it calls;
# RUN_IMAGE is the same release of the distribution without a toolkit. CUDA_ARCH as in the Makefile: the cards that
# code is made for. The driver is the host's.
# --shm-size is the room for tensors that are queued or kept; a container's default of 64 MiB is little.
ARG BUILD_IMAGE=debian:13-slim
ARG RUN_IMAGE=debian:13-slim

FROM ${BUILD_IMAGE} AS build
ARG CUDA_ARCH=
WORKDIR /src
# the packages first: this layer stays cached while the sources change
COPY deploy/install-packages.sh deploy/
RUN deploy/install-packages.sh build
COPY . .
RUN make -j"$(nproc)" ${CUDA_ARCH:+CUDA_ARCH="$CUDA_ARCH"} all backends && deploy/image-files.sh build/image

FROM ${RUN_IMAGE}
COPY --from=build /src/build/image/runtime-packages /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends $(cat /tmp/runtime-packages) redis-server ca-certificates \
    && rm -rf /var/lib/apt/lists/* /tmp/runtime-packages \
    && useradd --system --uid 10001 --home-dir /var/lib/blasd --create-home blasd \
    && install -d -o blasd -g blasd -m 0700 /var/lib/blasd /blobs
COPY --from=build /src/build/image/root/ /
# what is in it stands beside it, as SPDX: /usr/local/share/blasd/sbom.spdx.json
COPY --from=build /src/deploy/sbom.sh /usr/local/share/blasd/
RUN ldconfig && cd /usr/local/share/blasd && ./sbom.sh "$(blasd --version | cut -d ' ' -f 2)" >sbom.spdx.json && rm sbom.sh
# what the host's container runtime hands in of its driver, where it has one
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# by number, for where a policy asks for a user that is not root (runAsNonRoot)
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["blasd-healthcheck"]
VOLUME /var/lib/blasd
ENTRYPOINT ["blasd"]
# published on loopback, or behind a proxy that speaks TLS; with a certificate of one's own (docs/keys.md) without the last
CMD ["up", "--listen", "0.0.0.0:8080", "--data", "/var/lib/blasd", \
     "--keys", "/var/lib/blasd/keys.json", "--first-key", "--insecure-no-tls"]
