module github.com/capk3s/capk3s/test/binaries/certmanager

go 1.26.0

require github.com/cert-manager/cert-manager v1.21.1
